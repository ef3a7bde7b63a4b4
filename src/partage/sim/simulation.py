"""One simulation: one workload, one policy, one order of arrival.

Pods come one by one and never leave; a pod that fits nowhere is lost, but its demand has arrived.
Measured are the milli-cards allocated at each whole percent of arrived demand, and the time of each
decision. Lessons (new prices) are made between decisions, as they are in a cluster.

Every placement is checked against a plain account of the cluster that no policy has a hand in.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Container, Sequence
from typing import Protocol

import msgspec

from partage.core import cards, errors
from partage.core.placement import plans
from partage.sim import arrivals
from partage.sim.traces import CARD_MILLI, TracePod

Placement = tuple[str, tuple[int, ...]]  # a node and the positions of its cards


class Contestant(Protocol):
    """A policy that takes part."""

    def choose(self, pod: TracePod, among: Container[str]) -> Placement | None:
        """Decide where a pod goes, among nodes with enough CPU and main memory; this is timed."""
        ...

    def settle(self, pod: TracePod, placement: Placement | None) -> None:
        """Record the decision, and learn from it if there is something to learn."""
        ...


class Factory(Protocol):
    """Makes a contestant for a cluster; oracles look at the whole workload."""

    def __call__(self, nodes: Sequence[cards.Node], pods: Sequence[TracePod], /) -> Contestant:
        """A fresh contestant."""
        ...


class Run(msgspec.Struct, frozen=True):
    """What one run showed; ``curve[x]`` is the allocation in percent at x percent arrived."""

    curve: dict[int, float]
    decisions_us: list[float]


def run(
    nodes: Sequence[cards.Node],
    pods: Sequence[TracePod],
    factory: Factory,
    *,
    seed: int,
    demand: float,
    progress: Callable[[float], None] = lambda _done: None,
) -> Run:
    """Let the pods arrive."""
    source = random.Random(seed)
    total_milli = CARD_MILLI * sum(len(node.cards) for node in nodes)
    arriving = arrivals.arrange(pods, wanted_milli=int(demand * total_milli), source=source)
    order = list(nodes)
    source.shuffle(order)  # equals are chosen in this order
    contestant = factory(order, pods)
    account = Account(order)
    curve, decisions_us = _Curve(total_milli), []
    for number, pod in enumerate(arriving, start=1):
        began = time.perf_counter_ns()
        placement = contestant.choose(pod, account.enough(pod))
        decisions_us.append((time.perf_counter_ns() - began) / 1000)
        if placement is not None:
            account.take(pod, *placement)
        contestant.settle(pod, placement)
        curve.note(arrived_milli=pod.milli, allocated_milli=account.allocated_milli)
        progress(number / len(arriving))
    return Run(curve.means(end=round(100 * demand)), decisions_us)


class Account:
    """What is free, kept with the plainest means."""

    def __init__(self, nodes: Sequence[cards.Node]) -> None:
        self.allocated_milli = 0
        self._cpu_milli = {node.name: node.free_cpu_milli or 0 for node in nodes}
        self._main_mib = {node.name: node.free_main_mib or 0 for node in nodes}
        self._models = {node.name: [card.model for card in node.cards] for node in nodes}
        self._free_milli = {node.name: [CARD_MILLI] * len(node.cards) for node in nodes}

    def enough(self, pod: TracePod) -> Container[str]:
        """The nodes with enough CPU and main memory for a pod."""
        return _Enough(self._cpu_milli, self._main_mib, pod)

    def take(self, pod: TracePod, node: str, positions: tuple[int, ...]) -> None:
        """Count a placement, or stop the run: a policy that cheats proves nothing."""
        self._cpu_milli[node] -= pod.demand.cpu_milli
        self._main_mib[node] -= pod.demand.main_mib
        free = self._free_milli[node]
        for position in positions:
            free[position] -= pod.card_milli
        wrong_model = not all(
            plans.model_accepted(container.demand, self._models[node][i])
            for container in pod.demand.containers
            for i in positions
        )
        short = min(self._cpu_milli[node], self._main_mib[node], *free) < 0
        if short or wrong_model or len(set(positions)) != pod.cards:
            raise errors.LedgerError(f"pod {pod.name} does not fit on cards {positions} of {node}")
        self.allocated_milli += pod.milli


class _Enough:
    """A container of node names that looks only at the names it is asked about."""

    def __init__(self, cpu_milli: dict[str, int], main_mib: dict[str, int], pod: TracePod) -> None:
        self._cpu_milli = cpu_milli
        self._main_mib = main_mib
        self._demand = pod.demand

    def __contains__(self, name: object) -> bool:
        node = str(name)
        enough_cpu = self._cpu_milli[node] >= self._demand.cpu_milli
        return enough_cpu and self._main_mib[node] >= self._demand.main_mib


class _Curve:
    """Allocation against arrived demand, averaged over the arrivals that round to one percent.

    In a small cluster one pod may leap over a percent; what was allocated before it holds there.
    """

    def __init__(self, total_milli: int) -> None:
        self._total_milli = total_milli
        self._arrived_milli = 0
        self._sums: dict[int, list[float]] = {}

    def note(self, *, arrived_milli: int, allocated_milli: int) -> None:
        self._arrived_milli += arrived_milli
        percent = round(100 * self._arrived_milli / self._total_milli)
        cell = self._sums.setdefault(percent, [0.0, 0])
        cell[0] += 100 * allocated_milli / self._total_milli
        cell[1] += 1

    def means(self, end: int) -> dict[int, float]:
        """The curve from nothing to the demand that was to arrive."""
        curve, last = {}, 0.0
        for percent in range(max(end, *self._sums) + 1):
            if percent in self._sums:
                total, count = self._sums[percent]
                last = total / count
            curve[percent] = last
        return curve
