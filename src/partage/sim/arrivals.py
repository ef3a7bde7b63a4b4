"""Arrivals: the order of the pods, and how many of them come.

As in the published experiment: the pods are shuffled, then the list is grown by clones drawn with
replacement until it asks for the wanted multiple of the cluster's cards, or cut if it asks for
more. The random source is the caller's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from partage.core import errors
from partage.sim.traces import TracePod

_MOST_CLONES = 200_000


def arrange(
    pods: Sequence[TracePod], *, wanted_milli: int, source: random.Random
) -> list[TracePod]:
    """The pods in the order of their arrival, grown or cut to the wanted demand."""
    arriving = list(pods)
    source.shuffle(arriving)
    demand_milli = sum(pod.milli for pod in arriving)
    if demand_milli > wanted_milli:
        arriving = _cut(arriving, demand_milli - wanted_milli, source)
    else:
        arriving += _clones(pods, wanted_milli - demand_milli, source)
    if not arriving:
        raise errors.InputError(
            "no pod arrives: the demand is smaller than one pod", instead="raise --demand"
        )
    return arriving


def _clones(pods: Sequence[TracePod], missing_milli: int, source: random.Random) -> list[TracePod]:
    clones: list[TracePod] = []
    while True:
        clone = source.choice(pods)
        # The published test looks at one card of the next pod, so it may overshoot a little.
        if clone.card_milli > missing_milli:
            return clones
        clones.append(clone)
        missing_milli -= clone.milli
        if len(clones) > _MOST_CLONES:
            raise errors.InputError(
                f"more than {_MOST_CLONES} pods would have to arrive",
                instead="lower --demand, or give a workload in which more pods ask for cards",
            )


def _cut(arriving: list[TracePod], excess_milli: int, source: random.Random) -> list[TracePod]:
    doomed: set[int] = set()
    order = list(range(len(arriving)))
    source.shuffle(order)
    for position in order:
        if excess_milli <= 0:
            break
        doomed.add(position)
        excess_milli -= arriving[position].milli
    return [pod for position, pod in enumerate(arriving) if position not in doomed]
