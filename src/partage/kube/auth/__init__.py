"""Logging in: where the API server is, how it is recognized, and with which login."""
