"""Partage shares GPUs between people and jobs: on one machine, in Kubernetes and under Slurm.

This package holds nothing but its version, the single source that the build reads. Import what you
need from the subpackages; `partage.core` is the place to begin, as all the rest stands on it.
"""

__version__ = "0.1.0"
