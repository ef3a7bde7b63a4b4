"""The ledger: one SQLite file with the grants of this machine, and the requests that wait."""
