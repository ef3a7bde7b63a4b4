"""Slurm: its configuration written and examined, and its cards and jobs shown.

Slurm decides; it stands beside ``agent`` and ``local``. Nothing limits a job of Slurm yet.
"""
