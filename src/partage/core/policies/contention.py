"""Contention: CPU beside free cards that pods without cards will take.

Pods that ask for CPU alone do no harm as long as they fit on nodes with more CPU than their cards
need. Where they do not, they take CPU that free cards need, and then CPU is what is scarce, not
cards. Whether it comes to that is a balance over all nodes: the CPU that is free, against what the
pods that are expected until the cards are full ask for, with cards and without.

If CPU is short, the cards of a node can count on a part of its CPU only. That part is larger where
little is free, for a pod of 32 CPUs takes nothing from a node with 12: the last CPUs of a node are
left to pods with cards. So it is better to have some CPU beside free cards on many nodes than to
have much on a few, and a policy that looks at what is kept comes to that by itself.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence

import msgspec

from partage.core.policies import stranding

NodeRoom = tuple[float, int]  # worth of the free cards of a node, its free CPU in milli
# Free CPU from one size of rivals to the next: where it starts, what is kept of all below, and the
# share that is kept of what is above. A plain tuple, for every rating of a node reads one.
Piece = tuple[float, float, float]


class Contended(msgspec.Struct, frozen=True):
    """CPU demand of cards where pods without cards (rivals) take a part of the CPU."""

    demand: stranding.CpuDemand
    sizes_milli: tuple[int, ...]  # what rivals ask for, ascending
    pieces: tuple[Piece, ...]  # up to each of the sizes, and beyond the last

    def stranded(self, worth: float, free_cpu_milli: float) -> float:
        """The expected value, in cards, that stays idle for want of CPU."""
        return self.demand.stranded(worth, self.kept_milli(free_cpu_milli))

    def kept_milli(self, free_cpu_milli: float) -> float:
        """The part of a node's free CPU that its cards can count on."""
        start, kept, share = self.pieces[bisect.bisect_right(self.sizes_milli, free_cpu_milli)]
        return kept + (free_cpu_milli - start) * share


def learn(loads: Iterable[stranding.Load], nodes: Iterable[NodeRoom]) -> Contended | None:
    """From the pods that arrived and what is free now; None if CPU suffices for all."""
    pods = list(loads)
    rivals = _Rivals(pods)
    # Caution trusts that pods which ask for little will use the last CPU; here rivals are first.
    demand = stranding.learn(pods, caution=1.0)
    if not rivals.cpu_milli or not demand.per_card_milli:
        return None
    per_card_milli = rivals.cpu_milli / sum(cards * count for cards, _, count in pods)
    taken = _taken(list(nodes), demand.per_card_milli, per_card_milli, rivals)
    if taken <= 0:
        return None
    return Contended(demand, tuple(rivals.sizes_milli), tuple(rivals.pieces(taken)))


def _taken(
    nodes: Sequence[NodeRoom], per_card_milli: float, rivals_per_card_milli: float, rivals: _Rivals
) -> float:
    """The share of the CPU that free cards need which rivals will take, 0 to 1."""
    worth = sum(cards for cards, _ in nodes)
    needed = [min(max(cpu, 0), per_card_milli * cards) for cards, cpu in nodes]
    spare = sum(
        rivals.fitting(cpu) * (cpu - need)
        for (_, cpu), need in zip(nodes, needed, strict=True)
        if cpu > need
    )
    if not sum(needed):
        return 0.0
    # All come together, so when CPU runs out, the same part of either demand has come.
    asked_milli = (per_card_milli + rivals_per_card_milli) * worth
    come = min(1.0, (sum(needed) + spare) / asked_milli)
    return min(1.0, (come * rivals_per_card_milli * worth - spare) / sum(needed))


class _Rivals:
    """What pods without cards ask for."""

    def __init__(self, loads: Iterable[stranding.Load]) -> None:
        by_size: dict[int, float] = {}
        for cards, cpu_milli, count in loads:
            if not cards and cpu_milli > 0:
                by_size[cpu_milli] = by_size.get(cpu_milli, 0.0) + cpu_milli * count
        self.sizes_milli = sorted(by_size)
        self.cpu_milli = sum(by_size.values())
        sums = itertools.accumulate((by_size[size] for size in self.sizes_milli), initial=0.0)
        self._shares = [cpu / self.cpu_milli if by_size else 0.0 for cpu in sums]

    def fitting(self, free_cpu_milli: int) -> float:
        """The share of their demand that comes in pieces which fit, 0 to 1."""
        return self._shares[bisect.bisect_right(self.sizes_milli, free_cpu_milli)]

    def pieces(self, taken: float) -> Iterable[Piece]:
        """What is kept of a node's CPU if they take this share of what they fit into."""
        start, kept = 0, 0.0
        for size, fitting in zip([*self.sizes_milli, 0], self._shares, strict=True):
            share = 1 - taken * fitting
            yield start, kept, share
            start, kept = size, kept + (size - start) * share
