"""kube-scheduler's configuration, with Partage as its extender.

::

    configuration_text   as YAML with comments, or as JSON
    configuration        the whole of it, made anew or merged into one that is there
    managed_resources    which pods come to Partage, by what the nodes of a cluster advertise

All of it is pure; what is shipped in deploy/scheduler-config.yaml follows from it.
"""
