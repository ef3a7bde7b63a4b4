"""Slurm: its configuration written and examined, its cards and jobs shown, its jobs fenced.

Slurm decides; it stands beside ``agent`` and ``local``. The plugin of Slurm (``native/spank``) puts
each task behind its fence; here is what it needs on a node, and what is left of a job.
"""
