"""A real Kubernetes cluster on this machine, for tests, for benchmarks and to try things out.

:mod:`cluster.programs` builds the programs, :mod:`cluster.control_plane` and :mod:`cluster.node`
run them, :mod:`cluster.partage_processes` runs Partage beside them and :mod:`cluster.faults` breaks
what is between. :mod:`cluster.api` talks to the API server, and :mod:`cluster.objects` makes what
goes in. On the command line it is ``python -m cluster``. It is no part of the product, and the
product never imports it.
"""
