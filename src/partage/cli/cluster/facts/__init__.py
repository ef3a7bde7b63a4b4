"""Facts of a cluster for ``partage doctor --cluster``: what is read, and what of it is kept."""
