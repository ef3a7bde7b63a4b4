"""``partage slurm``: Slurm's configuration written and examined, and its jobs held to their shares.

::

    command                 the group, and what reads the configuration and the cluster
    installation_commands   the plugin put into Slurm, and taken out again
    job_commands            what is done on a node before, after and about jobs
"""
