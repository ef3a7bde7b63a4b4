"""Ranking: the best 64 of 5,000 nodes, from names to names.

5,000 nodes of 8 cards, partly filled with pods of many sizes; 64 shapes of demand are alive, and
one pod is granted between two questions. The floor is what any answer needs at least: one
intersection of the set of known names with the set of the 5,000 names of the question.
"""

from __future__ import annotations

import itertools
import random

from bench.measurement import durations
from bench.measurement.results import Line
from partage.core import cards, demands, fleet, grants
from partage.core.policies import binpack, priced, spread

NODES = 5000
CARDS = 8
SHAPES = 64
BEST = 64
_MODELS = (("NVIDIA A100-SXM4-80GB", 81920), ("NVIDIA A30", 24576), ("Tesla T4", 15360))
_FLOOR = "set intersection"


def run() -> list[Line]:
    """All lines."""
    filled = FilledFleet(random.Random(1))
    lines = []
    for policy in ("priced", "binpack"):
        lines += [_warm(filled, policy), _cold(filled, policy)]
    return lines


class FilledFleet:
    """A filled fleet, the questions about it, and the pods that come between."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self.fleet = fleet.Fleet(priced.Priced(), binpack.Binpack(), spread.Spread())
        self.names = [f"gpu-node-{i:04}.example" for i in range(NODES)]
        self.name_set = set(self.names)
        self.shapes = [self._shape() for _ in range(SHAPES)]
        self._uids = itertools.count()
        for name in self.names:
            self.fleet.set_node(_node(name, *source.choice(_MODELS), source))
        for _ in range(3 * NODES):
            self.grant()

    def grant(self) -> None:
        """Put one pod somewhere."""
        pod = grants.Pod(str(next(self._uids)))
        node = self._source.choice(self.names)
        if isinstance(self.fleet.hold(pod, self._shape(), node, expires_at=0), fleet.Hold):
            self.fleet.confirm(pod.uid)

    def new_shape(self, policy: str) -> demands.PodDemand:
        """A shape that was never asked about."""
        return _pod(demands.Demand(memory_mib=4000 + next(self._uids) % 3000), policy=policy)

    def _shape(self) -> demands.PodDemand:
        source = self._source
        if source.random() < 0.2:
            whole = demands.Demand(cards=source.choice((1, 2, 4)), exclusive=demands.Exclusive.CARD)
            return _pod(whole, cpu_milli=1000 * source.randint(1, 8))
        share = demands.Demand(
            memory_mib=256 * source.randint(2, 48), compute_percent=5 * source.randint(0, 6)
        )
        return _pod(share, cpu_milli=1000 * source.randint(1, 8))


def _warm(filled: FilledFleet, policy: str) -> Line:
    shapes = itertools.cycle(_by(shape, policy) for shape in filled.shapes)
    for _ in range(SHAPES):
        filled.fleet.best(next(shapes))
    question = Question(filled)

    def before() -> None:
        filled.grant()
        question.renew()

    took_us, floor_us = durations.compare_us(
        lambda: question.ask(next(shapes)),
        question.floor,
        before_work=before,
        before_floor=question.renew,
        rounds=4 * SHAPES,
    )
    return Line(
        what=f"{policy}: best {BEST} of {NODES} names, {SHAPES} shapes alive",
        took_us=took_us,
        floor=_FLOOR,
        floor_us=floor_us,
        aim=3,
    )


def _cold(filled: FilledFleet, policy: str) -> Line:
    question = Question(filled)
    took_us, floor_us = durations.compare_us(
        lambda: question.ask(filled.new_shape(policy)),
        question.floor,
        before_work=question.renew,
        before_floor=question.renew,
        rounds=25,
    )
    return Line(
        what=f"{policy}: the same for a shape never seen before",
        took_us=took_us,
        floor=_FLOOR,
        floor_us=floor_us,
        aim=120,
    )


class Question:
    """Which of these names are best? The names come as new strings, as from a decoder."""

    def __init__(self, filled: FilledFleet) -> None:
        self._filled = filled
        self.renew()

    def renew(self) -> None:
        """The same names, decoded anew into a set."""
        self._names = {name[:4] + name[4:] for name in self._filled.names}

    def ask(self, shape: demands.PodDemand) -> list[str]:
        """The answer."""
        return self._filled.fleet.best(shape, limit=BEST, among=self._names)

    def floor(self) -> set[str]:
        """The least that any answer has to do."""
        return self._filled.name_set & self._names


def _node(name: str, model: str, memory_mib: int, source: random.Random) -> cards.Node:
    return cards.Node(
        name=name,
        free_cpu_milli=source.randint(8, 96) * 1000,
        cards=tuple(
            cards.Card(uuid=f"{name}/{i}", index=i, memory_mib=memory_mib, model=model)
            for i in range(CARDS)
        ),
    )


def _pod(demand: demands.Demand, *, policy: str = "", cpu_milli: int = 0) -> demands.PodDemand:
    container = demands.ContainerDemand("main", demand)
    return demands.PodDemand(containers=(container,), nodes_by=policy, cpu_milli=cpu_milli)


def _by(pod: demands.PodDemand, policy: str) -> demands.PodDemand:
    return _pod(pod.containers[0].demand, policy=policy, cpu_milli=pod.cpu_milli)
