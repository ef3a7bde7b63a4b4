"""What kube-scheduler last asked about each pod, and whether it asks about a part of the nodes.

On a large cluster kube-scheduler stops looking when it has found enough nodes (about 500 of 5,000,
never fewer than 100) and asks about those, another part each time. A pod that fits on one node only
then waits until that node happens to be among them. Nothing in a request says that it is about a
part, but it shows: again and again the same number of nodes, and never the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set

import msgspec

FEWEST = 100  # kube-scheduler never looks for fewer nodes than this, if there are as many
_SURE = 3  # parts in a row, before it is reported
_MOST = 4096  # pods whose last request is remembered


class LastFilter(msgspec.Struct, frozen=True):
    """The last filter request about a pod."""

    at: float
    asked_nodes: int  # in the request
    cluster_nodes: int
    answered_nodes: int  # in the answer

    @property
    def partial(self) -> bool:
        """Whether it may have been about a part of the nodes that would do."""
        return FEWEST <= self.asked_nodes < self.cluster_nodes


class FilterHistory:
    """The last request about each pod, and what they have in common."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, LastFilter] = {}  # by uid
        self._names: Set[str] = frozenset()  # of the last partial request
        self._parts = 0  # in a row

    def note(
        self, uid: str, names: Collection[str], cluster_nodes: int, answered_nodes: int
    ) -> LastFilter:
        """A pod was filtered: so many nodes exist, and so many are in the answer."""
        last = LastFilter(self._clock(), len(names), cluster_nodes, answered_nodes)
        self._last.pop(uid, None)
        self._last[uid] = last
        if len(self._last) > _MOST:
            del self._last[next(iter(self._last))]
        if last.partial:
            self._compare(names)
        elif last.asked_nodes >= cluster_nodes:
            self._parts = 0
        return last

    def about(self, uid: str) -> LastFilter | None:
        """The last request about a pod, as far as it is remembered."""
        return self._last.get(uid)

    def age_s(self, last: LastFilter) -> float:
        """How long ago it came."""
        return self._clock() - last.at

    @property
    def problem(self) -> str:
        """What is wrong with how kube-scheduler asks; empty if nothing is."""
        if self._parts < _SURE:
            return ""
        return (
            f"it asks about {len(self._names)} nodes at a time, another part of them each time, so "
            "pods that fit on few nodes wait longer: set percentageOfNodesToScore: 100 in the "
            "profiles that serve GPU pods, as deploy/scheduler-config.yaml does"
        )

    def _compare(self, names: Collection[str]) -> None:
        part = names if isinstance(names, Set) else frozenset(names)
        same_number = len(part) == len(self._names)
        if not same_number:
            self._parts = 1
        elif part != self._names:
            self._parts += 1
        self._names = part
