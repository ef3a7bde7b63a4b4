"""Topology: which cards are near each other.

Work on several cards is only as fast as the links between them, so a set is judged by the sum of
its pairs' links. Nodes have at most a few cards, so sets are compared one by one while that is
cheap, and grown greedily from a few cards where it is not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

Links = Mapping[str, Mapping[str, int]]

_MOST_SETS = 512
_MOST_SEEDS = 16


def nearest(candidates: Sequence[str], count: int, links: Links) -> tuple[str, ...]:
    """The ``count`` best-connected of the candidates; earlier candidates win ties."""
    if math.comb(len(candidates), count) <= _MOST_SETS:
        sets = itertools.combinations(candidates, count)
        return max(sets, key=lambda chosen: nearness(chosen, links))  # max keeps the first of ties
    seeds = candidates[:_MOST_SEEDS]
    grown = [_grown(seed, candidates, count, links) for seed in seeds]
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
    pulls = {uuid: 0 for uuid in candidates if uuid != seed}
    while len(chosen) < count:
        near = links.get(chosen[-1], {})
        for uuid in pulls:
            pulls[uuid] += near.get(uuid, 0)
        chosen.append(max(pulls, key=pulls.__getitem__))
        del pulls[chosen[-1]]
    return tuple(chosen)
