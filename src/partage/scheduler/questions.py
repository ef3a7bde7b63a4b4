"""Questions: which nodes kube-scheduler asks about, and whether that is only a part of them.

On a large cluster kube-scheduler stops looking when it has found enough nodes (about 500 of 5,000,
never fewer than 100) and asks about those, another part each time. A pod that fits on one node only
then waits until that node happens to be among them. Nothing in a question says that it is about a
part, but it shows: again and again the same number of nodes, and never the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Set

import msgspec

FEWEST = 100  # kube-scheduler never looks for fewer nodes than this, if there are as many
_SURE = 3  # parts in a row, before anybody is told
_MOST = 4096  # pods whose last question is remembered


class Question(msgspec.Struct, frozen=True):
    """What was asked about a pod last."""

    at: float
    asked: int  # nodes
    known: int  # nodes of the cluster
    nodes: int  # that would do; in the answer

    @property
    def partial(self) -> bool:
        """Whether it may have been about a part of the nodes that would do."""
        return FEWEST <= self.asked < self.known


class Questions:
    """The last question about each pod, and what they have in common."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, Question] = {}  # by uid
        self._names: Set[str] = frozenset()  # of the last partial question
        self._parts = 0  # in a row

    def note(self, uid: str, names: Collection[str], known: int, nodes: int) -> Question:
        """A pod was asked about."""
        question = Question(self._clock(), len(names), known, nodes)
        self._last.pop(uid, None)
        self._last[uid] = question
        if len(self._last) > _MOST:
            del self._last[next(iter(self._last))]
        if question.partial:
            self._compare(names)
        elif question.asked >= known:
            self._parts = 0
        return question

    def about(self, uid: str) -> Question | None:
        """The last question about a pod, as far as it is remembered."""
        return self._last.get(uid)

    def age_s(self, question: Question) -> float:
        """How long ago it was asked."""
        return self._clock() - question.at

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
        asked = names if isinstance(names, Set) else frozenset(names)
        same_number = len(asked) == len(self._names)
        if not same_number:
            self._parts = 1
        elif asked != self._names:
            self._parts += 1
        self._names = asked
