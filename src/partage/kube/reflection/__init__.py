"""Collections of the API server, kept equal to a sink."""
