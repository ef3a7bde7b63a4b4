"""Card sums: whether any card has more on it than it has, by the grants on the pods alone.

The sums are made here and not by Partage's own bookkeeping, which is what they judge. One list of
the API server is one moment of the cluster; several of them one after another tell besides whether
a pod that was bound stays where it is.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Mapping

from cluster import api

GRANT = "partage.dev/grant"


class Broken(Exception):
    """Something that must never happen has happened."""


class Sums:
    """What was seen so far; ``card_mib`` is the memory of each card."""

    def __init__(self, card_mib: int) -> None:
        self._card_mib = card_mib
        self.fullest_mib = 0  # what any card had on it at any moment
        self._settled: dict[str, tuple[str, str]] = {}  # node and grant, by the pod's uid

    def check(self, pods: Iterable[api.Object]) -> int:
        """How many of the pods at one moment are bound; raises Broken."""
        bound = 0
        used_mib: collections.Counter[str] = collections.Counter()
        for pod in (pod for pod in pods if pod["spec"].get("nodeName")):
            bound += 1
            self._check_settled(pod)
            used_mib.update(_shares_mib(pod))
        self.fullest_mib = max([self.fullest_mib, *used_mib.values()])
        over = {card: used for card, used in used_mib.items() if used > self._card_mib}
        if over:
            raise Broken(f"cards with more than their {self._card_mib} MiB: {over}")
        return bound

    def check_none_lost(self, pods: Iterable[api.Object], names: Iterable[str]) -> None:
        """Raises Broken unless exactly these pods are there, bound or not, by their names."""
        made, listed = {*names}, {pod["metadata"]["name"] for pod in pods}
        missing, extra = made - listed, listed - made
        if missing or extra:
            raise Broken(f"pods that were lost: {sorted(missing)}, that nobody made: {extra}")

    def _check_settled(self, pod: api.Object) -> None:
        now = (pod["spec"]["nodeName"], _written(pod))
        before = self._settled.setdefault(pod["metadata"]["uid"], now)
        if before != now:
            name = pod["metadata"]["name"]
            raise Broken(f"pod {name} was bound twice: first {before}, then {now}")


def _shares_mib(pod: api.Object) -> Mapping[str, int]:
    """What a pod has of each card."""
    record = json.loads(_written(pod))
    meta, node = pod["metadata"], pod["spec"]["nodeName"]
    if (record["uid"], record["node"]) != (meta["uid"], node):
        raise Broken(f"pod {meta['name']} on {node} has the grant of another: {record}")
    used_mib: collections.Counter[str] = collections.Counter()
    for container in record["containers"]:
        for share in container["shares"]:
            used_mib[f"{node}/{share['uuid']}"] += share["memory_mib"]
    return used_mib


def _written(pod: api.Object) -> str:
    written = (pod["metadata"].get("annotations") or {}).get(GRANT, "")
    if not written:
        raise Broken(f"pod {pod['metadata']['name']} is bound and has no grant")
    return str(written)
