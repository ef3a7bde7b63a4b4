"""Binpack: the least free card that fits, ties to the lowest index. This is gpushare's rule.

gpushare leaves the choice of the node to kube-scheduler; here the same rule chooses the node too,
and among equals the node with the least free memory, so that whole nodes stay free.
"""

from __future__ import annotations

from collections.abc import Iterable

from partage.core import demands
from partage.core.placement.arrangement import Chosen
from partage.core.placement.plans import Plan
from partage.core.placement.rooms import NodeState, Room
from partage.core.policies import contract

_HALF = 1 << (contract.KEY_BITS // 2)  # MiB; a node with a thousand TiB would still fit


class Binpack:
    """Fill what is begun."""

    name = "binpack"
    reads_cpu = reads_main = False

    def card_key(self, room: Room, memory_mib: int, compute_percent: int) -> int:
        return room.free_mib

    def offer(self, state: NodeState, plan: Plan, chosen: Chosen) -> int:
        return tightness(state, chosen)

    def node_key(self, state: NodeState, pod: demands.PodDemand, offer: int) -> int:
        return offer


def tightness(state: NodeState, chosen: Chosen) -> int:
    """Free memory of the chosen cards first, of the whole node second (CPU if no card is asked)."""
    if not chosen:
        return min(max(state.node.free_cpu_milli or 0, 0), contract.LARGEST_KEY)
    if len(chosen) == 1:
        positions: Iterable[int] = chosen[0]
    else:
        positions = {position for positions in chosen for position in positions}
    free_mib = 0
    for position in positions:
        free_mib += state.rooms[position].free_mib
    return free_mib * _HALF + max(state.free_mib, 0)
