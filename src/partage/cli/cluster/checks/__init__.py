"""Checks of a cluster for ``partage doctor --cluster``: facts in, findings out."""
