"""The cluster as the API server reports it, kept as a Fleet."""
