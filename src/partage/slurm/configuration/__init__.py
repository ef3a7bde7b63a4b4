"""Slurm's files as they are written, and what belongs into them."""
