"""A cluster, read once for a command."""
