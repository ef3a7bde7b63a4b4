"""Topology: which cards are near each other.

Work on several cards is only as fast as the links between them, so a set is judged by the sum of
its pairs' links. Nodes have at most a few cards, so sets are compared one by one while that is
cheap, and grown greedily from each card where it is not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

Links = Mapping[str, Mapping[str, int]]

_MOST_SETS = 512


def nearest(candidates: Sequence[str], count: int, links: Links) -> tuple[str, ...]:
    """The ``count`` best-connected of the candidates; earlier candidates win ties."""
    if math.comb(len(candidates), count) <= _MOST_SETS:
        sets = itertools.combinations(candidates, count)
        return max(sets, key=lambda chosen: nearness(chosen, links))  # max keeps the first of ties
    grown = [_grown(seed, candidates, count, links) for seed in candidates]
    return max(grown, key=lambda chosen: nearness(chosen, links))


def nearness(chosen: Sequence[str], links: Links) -> int:
    """How well a set is connected within itself."""
    return sum(links.get(a, {}).get(b, 0) for a, b in itertools.combinations(chosen, 2))


def pull(uuid: str, others: Sequence[str], links: Links) -> int:
    """How near one card is to others."""
    near = links.get(uuid, {})
    return sum(near.get(other, 0) for other in others)


def _grown(seed: str, candidates: Sequence[str], count: int, links: Links) -> tuple[str, ...]:
    chosen = [seed]
    while len(chosen) < count:
        rest = [uuid for uuid in candidates if uuid not in chosen]
        chosen.append(max(rest, key=lambda uuid: pull(uuid, chosen, links)))
    return tuple(chosen)
