"""What goes wrong between a client and the API server, when a test says so."""
