"""Mirroring: the cluster as the extender would see it, read once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from partage.cli import cluster_reading
from partage.core import fleet
from partage.dialects import base, pods
from partage.kube import errors as kube_errors
from partage.scheduler import mirror, units

P = TypeVar("P", bound=pods.Pod)


async def read(
    cluster: cluster_reading.Cluster,
    form: type[P],
    *,
    see: Callable[[P], None] = lambda _pod: None,
) -> mirror.Mirror:
    """A mirror of the cluster; ``see`` is shown every pod in its form, for none is kept."""
    # What is wrong is part of the answer; it need not be logged as well.
    logging.getLogger("partage").addHandler(logging.NullHandler())
    known = mirror.Mirror(fleet.standard(), units.Unit(base.Settings()))
    async for node in cluster.each_node():
        known.nodes.put(node)
    await _read_health(cluster, known)
    async for pod in cluster.each_pod(form):
        known.pods.put(pod)
        see(pod)
    return known


async def _read_health(cluster: cluster_reading.Cluster, known: mirror.Mirror) -> None:
    """Not everybody may read the lists of sick cards; the rest is worth showing without them."""
    try:
        async for sick in cluster.each_sick_list():
            known.sick.put(sick)
    except kube_errors.Forbidden as error:
        text = f"{error.message}; cards that are listed there as sick are shown as healthy"
        known.problems.set("configmaps of kube-system", text)
