"""The folder in which a machine keeps its state: where it is, and the leases in it."""
