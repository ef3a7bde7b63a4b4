"""The cluster as the extender would see it, read once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from partage.cli.cluster import cluster_snapshot
from partage.core import fleet
from partage.dialects import contract, memory_units, nodes, pods
from partage.kube import errors as kube_errors
from partage.scheduler.mirror import mirror

P = TypeVar("P", bound=pods.Pod)


async def read(
    cluster: cluster_snapshot.Cluster,
    form: type[P],
    *,
    see: Callable[[P], None] = lambda _pod: None,
    see_node: Callable[[nodes.Node], None] = lambda _node: None,
) -> mirror.Mirror:
    """A mirror of the cluster; ``see`` gets every pod in its form, as the mirror keeps none.

    And ``see_node`` gets every node, of which the mirror keeps its cards.
    """
    # Problems are part of the answer; they need not be logged as well.
    logging.getLogger("partage").addHandler(logging.NullHandler())
    unit = memory_units.Unit(contract.Settings())
    cluster_mirror = mirror.Mirror(fleet.standard(), unit, seen=see_node)
    async for node in cluster.each_node():
        cluster_mirror.nodes.put(node)
    await _read_health(cluster, cluster_mirror)
    await _read_totals(cluster, cluster_mirror)
    async for pod in cluster.each_pod(form):
        cluster_mirror.pods.put(pod)
        see(pod)
    return cluster_mirror


async def _read_health(cluster: cluster_snapshot.Cluster, cluster_mirror: mirror.Mirror) -> None:
    """Without the right to read the lists of unhealthy cards, the rest is shown."""
    try:
        async for unhealthy in cluster.each_unhealthy_list():
            cluster_mirror.unhealthy.put(unhealthy)
    except kube_errors.Forbidden as error:
        text = f"{error.message}; cards that are listed there as unhealthy are shown as healthy"
        cluster_mirror.problems.set("configmaps of kube-system", text)


async def _read_totals(cluster: cluster_snapshot.Cluster, cluster_mirror: mirror.Mirror) -> None:
    """Without the right to read namespaces, the rest is shown; of one node there are no totals."""
    cluster_mirror.namespaces.read = not cluster.node
    try:
        async for namespace in cluster.each_namespace():
            cluster_mirror.namespaces.put(namespace)
    except kube_errors.Forbidden as error:
        cluster_mirror.namespaces.read = False
        text = f"{error.message}; the totals of namespaces are not known here"
        cluster_mirror.problems.set("namespaces", text)
