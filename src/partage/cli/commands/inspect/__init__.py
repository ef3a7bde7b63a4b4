"""``partage inspect``: which pods have which cards of a cluster."""
