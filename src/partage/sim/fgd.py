"""FGD, fragmentation gradient descent (Weng et al., USENIX ATC '23), from its definition.

The workload is known beforehand (an oracle): the commonest shapes of pods, until they are 95 % of
all. A node's fragmentation is the share of its idle GPU that a pod drawn from these shapes could
not use: all of it if the pod cannot come, else the cards that are too small for it. A pod is placed
where fragmentation grows least; the score is 100 · sigmoid(gain in cards), cut to a whole number.
A sharing pod takes the card with the best score, whole-card pods the first idle cards.

What a node scores for a shape depends on its free CPU and free cards alone, so it is remembered by
them; ranks are kept as in the fleet.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from partage.core import cards, demands, ranking
from partage.core.inventory import Journal
from partage.core.placement import plans
from partage.sim.traces import CARD_MILLI, TracePod

_COVERED = 0.95
_TOP_SCORE = 100

State = tuple[str, int, tuple[int, ...]]  # model, free CPU, free milli of each card
Score = tuple[int, tuple[int, ...]]  # points lost, 0 is best; positions of the cards


class Fgd:
    """The policy with its own picture of the cluster."""

    name = "fgd"

    def __init__(self, nodes: Sequence[cards.Node], pods: Sequence[TracePod]) -> None:
        self._names = [node.name for node in nodes]
        self._ordinals = {node.name: ordinal for ordinal, node in enumerate(nodes)}
        self._states: list[State] = [
            (node.cards[0].model, node.free_cpu_milli or 0, (CARD_MILLI,) * len(node.cards))
            for node in nodes
        ]
        self._journal = Journal()
        self._workload = _Workload(pods)
        self._ranks: dict[_Shape, ranking.Rank] = {}
        self._scored: dict[_Shape, dict[State, Score | None]] = {}

    def choose(self, pod: TracePod, among: Container[str]) -> tuple[str, tuple[int, ...]] | None:
        """The best node and the positions of its cards."""
        shape = _shape(pod)
        best = self._rank(shape).best(1, among)
        if not best:
            return None
        ordinal = self._ordinals[best[0]]
        scored = self._scored[shape][self._states[ordinal]]
        return None if scored is None else (best[0], scored[1])

    def settle(self, pod: TracePod, placement: tuple[str, tuple[int, ...]] | None) -> None:
        """Record a placement; an oracle has nothing to learn."""
        if placement is None:
            return
        name, positions = placement
        ordinal = self._ordinals[name]
        model, cpu, free = self._states[ordinal]
        left = tuple(
            milli - pod.card_milli if position in positions else milli
            for position, milli in enumerate(free)
        )
        self._states[ordinal] = (model, cpu - pod.demand.cpu_milli, left)
        self._journal.note(ordinal, len(self._states))

    def _rank(self, shape: _Shape) -> ranking.Rank:
        scores = self._scored.setdefault(shape, {})

        def rate(ordinal: int) -> int | None:
            state = self._states[ordinal]
            if state not in scores:
                scores[state] = self._workload.score(shape, state)
            scored = scores[state]
            return None if scored is None else scored[0] << ranking.ORDINAL_BITS | ordinal

        rank = self._ranks.get(shape)
        changed = None if rank is None else self._journal.since(rank.seen)
        if rank is None or changed is None:
            rank = self._ranks[shape] = ranking.Rank(self._names, seen=self._journal.end)
            for _ in rank.build(rate):
                pass  # nothing else is to be done meanwhile
        else:
            rank.refresh(rate, changed, seen=self._journal.end)
        return rank


class _Shape(NamedTuple):
    """What is the same for all pods of a kind."""

    cpu_milli: int
    card_milli: int
    cards: int
    demand: demands.Demand | None  # it knows which models are accepted; None: no card is asked

    def accepts(self, model: str) -> bool:
        return self.demand is None or plans.model_accepted(self.demand, model)


def _shape(pod: TracePod) -> _Shape:
    requested = [container.demand for container in pod.demand.containers]
    return _Shape(
        pod.demand.cpu_milli, pod.card_milli, pod.cards, requested[0] if requested else None
    )


class _Workload:
    """The shapes that are expected, and what a node is to them."""

    def __init__(self, pods: Sequence[TracePod]) -> None:
        self._shapes = _commonest(pods)
        self._groups: dict[str, list[_Group]] = {}
        self._fragments: dict[State, float] = {}

    def score(self, shape: _Shape, state: State) -> Score | None:
        """What placing such a pod on such a node is worth; None if it does not fit."""
        model, free_cpu, free = state
        if free_cpu < shape.cpu_milli or not shape.accepts(model):
            return None
        options = _options(free, shape.card_milli, shape.cards)
        if not options:
            return None
        before = self.fragmentation(state)
        best: Score | None = None
        for positions, left in options:
            gain = before - self.fragmentation((model, free_cpu - shape.cpu_milli, left))
            points = _TOP_SCORE - int(_TOP_SCORE / (1 + math.exp(-gain / CARD_MILLI)))
            if best is None or points < best[0]:
                best = points, positions
        return best

    def fragmentation(self, state: State) -> float:
        """The milli of idle GPU that the expected pod cannot use."""
        model, free_cpu, free = state
        key = (model, free_cpu, tuple(sorted(free)))
        if key not in self._fragments:
            usable = sum(group.usable(free_cpu, free) for group in self._of(model))
            self._fragments[key] = sum(free) - usable
        return self._fragments[key]

    def _of(self, model: str) -> list[_Group]:
        if model not in self._groups:
            accepted = [(s, p) for s, p in self._shapes if s.cards and s.accepts(model)]
            accepted.sort(key=_size)
            grouped = itertools.groupby(accepted, key=_size)
            self._groups[model] = [_Group(*size, entries) for size, entries in grouped]
        return self._groups[model]


class _Group:
    """Expected pods that ask for the same of cards and differ in CPU."""

    def __init__(self, milli: int, count: int, entries: Iterable[tuple[_Shape, float]]) -> None:
        self._milli = milli
        self._count = count
        by_cpu = sorted((shape.cpu_milli, chance) for shape, chance in entries)
        self._cpus = [cpu for cpu, _ in by_cpu]
        self._chances = [0.0, *itertools.accumulate(chance for _, chance in by_cpu)]

    def usable(self, free_cpu: int, free: tuple[int, ...]) -> float:
        """The idle GPU that these pods could use, weighted by how likely they are."""
        large = [milli for milli in free if milli >= self._milli]
        if len(large) < self._count:
            return 0.0
        return self._chances[bisect.bisect_right(self._cpus, free_cpu)] * sum(large)


def _size(entry: tuple[_Shape, float]) -> tuple[int, int]:
    return entry[0].card_milli, entry[0].cards


def _commonest(pods: Sequence[TracePod]) -> list[tuple[_Shape, float]]:
    counts = Counter(_shape(pod) for pod in pods)
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], str(entry[0])))
    kept: list[tuple[_Shape, int]] = []
    for shape, count in ordered:
        if sum(c for _, c in kept) >= _COVERED * len(pods):
            break
        kept.append((shape, count))
    total = sum(count for _, count in kept)
    return [(shape, count / total) for shape, count in kept]


def _options(
    free: tuple[int, ...], milli: int, count: int
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Ways to place: each different card for one share, the first idle cards for whole ones."""
    if not count:
        return [((), free)]
    fitting = [position for position, left in enumerate(free) if left >= milli]
    if len(fitting) < count:
        return []
    if milli == CARD_MILLI:
        return [_taken(free, tuple(fitting[:count]), milli)]
    firsts = {free[position]: position for position in reversed(fitting)}
    return [_taken(free, (position,), milli) for position in sorted(firsts.values())]


def _taken(
    free: tuple[int, ...], positions: tuple[int, ...], milli: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    left = tuple(m - milli if position in positions else m for position, m in enumerate(free))
    return positions, left
