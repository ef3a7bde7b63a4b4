"""Ranking: for one shape of demand, which nodes fit and in which order.

A Rank is a sorted list of integers, one per node that fits; the low bits name the node, the high
bits are the policy's opinion. Integers sort and compare several times faster than tuples. Beside
it is a list of the names in that order, and that is all that a question needs: walk it from the
front until enough of the names were found.

When a node changes, only its integer is taken out and put in again. The benchmark is ``deciding``
in ``bench/`` (docs/performance.md).
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence

from partage.core.policies import contract

ORDINAL_BITS = 20
MOST_NODES = 1 << ORDINAL_BITS
_ORDINAL_MASK = MOST_NODES - 1
_AT_ONCE = 64
MIXED = 1 << contract.KEY_BITS  # added to a key where qualities of service would share a card


class Rank:
    """The nodes that fit one shape, best first."""

    __slots__ = ("_by_ordinal", "_keys", "_ranked", "_reused", "_sorted", "seen")

    def __init__(self, names: Sequence[str], *, seen: int, reused: int = 0) -> None:
        self._by_ordinal = names
        self._reused = reused
        self._keys: list[int | None] = []
        self._sorted: list[int] = []
        self._ranked: list[str] = []  # the names in that order, to be walked through in C
        self.seen = seen  # how much of the fleet's journal is in here

    def build(self, rate: Callable[[int], int | None]) -> Iterator[None]:
        """Rate all nodes, a few with each step; whatever changes meanwhile is in the journal."""
        names, keys = self._by_ordinal, self._keys
        end = len(names)  # nodes that come later are in the journal, too
        while len(keys) < end:
            keys += map(rate, range(len(keys), min(end, len(keys) + _AT_ONCE)))
            yield
        self._sorted = sorted(key for key in keys if key is not None)
        self._ranked = [names[key & _ORDINAL_MASK] for key in self._sorted]

    def refresh(
        self,
        rate: Callable[[int], int | None],
        changed: Iterable[int],
        *,
        seen: int,
        reused: int = 0,
    ) -> None:
        """Rate the changed nodes anew; ``reused`` is how often an ordinal got another node."""
        keys = self._keys
        keys.extend([None] * (len(self._by_ordinal) - len(keys)))
        for ordinal in changed:
            old, new = keys[ordinal], rate(ordinal)
            if old == new and reused == self._reused:
                continue  # most changes of a node change nothing for most shapes
            if old is not None and old != new:
                self._remove(old)
            if new is not None:
                self._put(new, self._by_ordinal[ordinal], is_new=old != new)
            keys[ordinal] = new
        self.seen, self._reused = seen, reused

    def has(self, ordinal: int) -> bool:
        """Whether the node fits."""
        return ordinal < len(self._keys) and self._keys[ordinal] is not None

    def best(self, limit: int, among: Container[str] | None) -> list[str]:
        """The best names, at most ``limit`` (0: all), among those asked about."""
        if among is None:
            return self._ranked[: limit or None]
        most = len(among) if isinstance(among, Collection) else None
        return list(itertools.islice(filter(among.__contains__, self._ranked), limit or most))

    def _remove(self, key: int) -> None:
        place = bisect.bisect_left(self._sorted, key)
        del self._sorted[place]
        del self._ranked[place]

    def _put(self, key: int, name: str, *, is_new: bool) -> None:
        place = bisect.bisect_left(self._sorted, key)
        if is_new:
            self._sorted.insert(place, key)
            self._ranked.insert(place, name)
        else:
            self._ranked[place] = name  # another node may have taken the ordinal
