"""The agent's numbers for Prometheus: under our names, and under those of older systems."""
