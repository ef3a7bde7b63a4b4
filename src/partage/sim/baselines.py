"""Baselines: published rules, written from their definition, to measure ours against.

``gpushare``: kube-scheduler's LeastAllocated on CPU and main memory chooses the node (the extender
does not), then the tightest card. ``bestfit``: the node on which least CPU and GPU is left over.
Scores are whole numbers from 0 to 100, as in kube-scheduler; equals are chosen in the order of the
nodes. FGD has a module of its own (:mod:`.fgd`), because it chooses the card by what the pod leaves
of the whole node.
"""

from __future__ import annotations

from collections.abc import Sequence

from partage.core import cards, demands
from partage.core.placement.arrangement import Chosen
from partage.core.placement.plans import Plan
from partage.core.placement.rooms import NodeState, Room

_TOP_SCORE = 100
_LARGEST_CPU_MILLI = 128_000  # of a node; the published rules measure in these units
_LARGEST_GPU_MILLI = 8_000


class GpushareRule:
    """Spread over nodes by CPU and main memory, tight on the card."""

    name = "gpushare"
    reads_cpu = reads_main = True

    def __init__(self, nodes: Sequence[cards.Node]) -> None:
        self._sizes = {
            node.name: (max(1, node.free_cpu_milli or 0), max(1, node.free_main_mib or 0))
            for node in nodes
        }

    def card_key(self, room: Room, memory_mib: int, compute_percent: int) -> int:
        return room.free_mib

    def offer(self, state: NodeState, plan: Plan, chosen: Chosen) -> None:
        return None

    def node_key(self, state: NodeState, pod: demands.PodDemand, offer: None) -> int:
        cpu_milli, main_mib = self._sizes[state.node.name]
        left_cpu = (state.node.free_cpu_milli or 0) - pod.cpu_milli
        left_main = (state.node.free_main_mib or 0) - pod.main_mib
        by_cpu = _TOP_SCORE * max(0, left_cpu) // cpu_milli
        by_main = _TOP_SCORE * max(0, left_main) // main_mib
        return _TOP_SCORE - (by_cpu + by_main) // 2


class BestFit:
    """The node with least left over."""

    name = "bestfit"
    reads_cpu = True
    reads_main = False

    def card_key(self, room: Room, memory_mib: int, compute_percent: int) -> int:
        return room.free_mib

    def offer(self, state: NodeState, plan: Plan, chosen: Chosen) -> int:
        """The GPU left over on the node."""
        requested_mib = sum(
            part.memory_mib(state.rooms[position].memory_mib)
            for part, positions in zip(plan.parts, chosen, strict=True)
            for position in positions
        )
        return sum(room.free_mib for room in state.rooms) - requested_mib

    def node_key(self, state: NodeState, pod: demands.PodDemand, offer: int) -> int:
        left_cpu = (state.node.free_cpu_milli or 0) - pod.cpu_milli
        score = 1 - left_cpu / _LARGEST_CPU_MILLI / 2 - offer / _LARGEST_GPU_MILLI / 2
        return _TOP_SCORE - int(_TOP_SCORE * max(0.0, score))
