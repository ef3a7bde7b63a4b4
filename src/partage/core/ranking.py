"""Ranking: for one shape of demand, which nodes fit and in which order.

A Rank is a sorted list of integers, one per node that fits; the low bits name the node, the high
bits are the policy's opinion. Integers sort and compare several times faster than tuples, and one
list of them is all that a question needs: walk it from the front until enough nodes were found.

When a node changes, only its integer is taken out and put in again. The benchmark is ``deciding``
in ``bench/`` (docs/performance.md).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Container, Iterable, Sequence

from partage.core.policies import base

ORDINAL_BITS = 20
MOST_NODES = 1 << ORDINAL_BITS
_ORDINAL_MASK = MOST_NODES - 1
MIXED = 1 << base.KEY_BITS  # added to a key where qualities of service would share a card


class Rank:
    """The nodes that fit one shape, best first."""

    __slots__ = ("_keys", "_sorted", "seen")

    def __init__(self, rate: Callable[[int], int | None], nodes: int, *, seen: int) -> None:
        self._keys = [rate(ordinal) for ordinal in range(nodes)]
        self._sorted = sorted(key for key in self._keys if key is not None)
        self.seen = seen  # how much of the fleet's journal is in here

    def refresh(
        self, rate: Callable[[int], int | None], changed: Iterable[int], nodes: int, *, seen: int
    ) -> None:
        """Rate the changed nodes anew."""
        keys, ranked = self._keys, self._sorted
        keys.extend([None] * (nodes - len(keys)))
        for ordinal in changed:
            old, new = keys[ordinal], rate(ordinal)
            if old == new:
                continue
            if old is not None:
                del ranked[bisect.bisect_left(ranked, old)]
            if new is not None:
                bisect.insort(ranked, new)
            keys[ordinal] = new
        self.seen = seen

    def has(self, ordinal: int) -> bool:
        """Whether the node fits."""
        return ordinal < len(self._keys) and self._keys[ordinal] is not None

    def best(self, names: Sequence[str], limit: int, among: Container[str] | None) -> list[str]:
        """The best names, at most ``limit`` (0: all), among those asked about."""
        found = []
        for entry in self._sorted:
            name = names[entry & _ORDINAL_MASK]
            if among is None or name in among:
                found.append(name)
                if len(found) == limit:
                    break
        return found
