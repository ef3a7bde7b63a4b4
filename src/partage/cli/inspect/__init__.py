"""``partage inspect``: who has which card of a cluster."""
