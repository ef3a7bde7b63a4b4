"""A real Slurm on loopback, for tests."""
