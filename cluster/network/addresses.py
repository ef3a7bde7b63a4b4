"""Addresses of a cluster's network; the machine does not know them, so all clusters have the same.

The hub stands between the nodes, with the control plane. A node's pods have addresses of a range of
the node's own. Nobody shares a network segment with anybody: each address is routed by itself.
"""

from __future__ import annotations

HUB = "10.200.0.254"
SERVICES = "10.0.0.0/24"
PODS = "10.244.0.0/16"
DOMAIN = "cluster.local"


def node(number: int) -> str:
    """The address of a node."""
    return f"10.200.0.{number}"


def pods(number: int) -> str:
    """What the addresses of a node's pods begin with."""
    return f"10.244.{number}"
