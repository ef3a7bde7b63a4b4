"""Spread: the freest card, on the freest node. For latency, when there is plenty."""

from __future__ import annotations

from partage.core import demands
from partage.core.placement.arrangement import Chosen
from partage.core.placement.plans import Plan
from partage.core.placement.rooms import NodeState, Room
from partage.core.policies import binpack, contract


class Spread:
    """Keep neighbours few."""

    name = "spread"
    reads_cpu = reads_main = False

    def card_key(self, room: Room, memory_mib: int, compute_percent: int) -> int:
        return -room.free_mib

    def offer(self, state: NodeState, plan: Plan, chosen: Chosen) -> int:
        return contract.LARGEST_KEY - binpack.tightness(state, chosen)

    def node_key(self, state: NodeState, pod: demands.PodDemand, offer: int) -> int:
        return offer
