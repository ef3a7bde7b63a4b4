"""``partage fit``: would a share fit, and where.

::

    command          the command, and the nodes that --node describes
    machine_answer   a share on this machine, now
    manifests        the pods of a YAML file
    pod_placement    where each of these pods would go, and why
"""
