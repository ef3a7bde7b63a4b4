"""Inspect, as gpushare's extender answers it: what is granted on each card, as JSON."""

from __future__ import annotations

import msgspec

from partage.core import grants
from partage.core.placement.rooms import NodeState
from partage.scheduler import wire
from partage.scheduler.mirror import mirror as mirrors
from partage.scheduler.verbs import filter_texts


class InspectedPod(msgspec.Struct, frozen=True, rename="camel"):
    """One tenant of a card, in units of ``aliyun.com/gpu-mem``."""

    name: str
    namespace: str
    used_gpu: int = msgspec.field(name="usedGPU")


class InspectedCard(msgspec.Struct, frozen=True):
    """One card."""

    id: int
    total_gpu: int = msgspec.field(name="totalGPU")
    used_gpu: int = msgspec.field(name="usedGPU")
    pods: list[InspectedPod]


class InspectedNode(msgspec.Struct, frozen=True):
    """One node and its cards."""

    name: str
    total_gpu: int = msgspec.field(name="totalGPU")
    used_gpu: int = msgspec.field(name="usedGPU")
    devs: list[InspectedCard]


class Inspected(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of inspect."""

    nodes: list[InspectedNode]
    error: str = ""


class GpushareInspect:
    """Answers inspect."""

    def __init__(self, mirror: mirrors.Mirror) -> None:
        self._mirror = mirror

    def inspect(self, node: str = "") -> bytes:
        """What is granted on each card of one node, or of all that have cards."""
        fleet = self._mirror.fleet
        if not node:
            with_cards = (state for state in fleet.states() if state.rooms)
            states = sorted(with_cards, key=lambda state: state.node.name)
            return wire.encode(Inspected([self._inspected(state) for state in states]))
        state = fleet.state(node)
        if state is None:
            return wire.encode(Inspected([], filter_texts.GPUSHARE_NOT_FOUND.format(name=node)))
        return wire.encode(Inspected([self._inspected(state)]))

    def _inspected(self, state: NodeState) -> InspectedNode:
        unit = self._mirror.settings.memory_unit_mib
        tenants: dict[str, list[tuple[grants.Pod, int]]] = {}
        for grant in state.grants.values():
            for uuid, taking in grants.takings(grant).items():
                tenants.setdefault(uuid, []).append((grant.pod, taking.memory_mib // unit))
        cards = [
            InspectedCard(
                id=room.card.index,
                total_gpu=room.memory_mib // unit,
                used_gpu=sum(used for _, used in tenants.get(room.card.uuid, [])),
                pods=[
                    InspectedPod(pod.name, pod.namespace, used)
                    for pod, used in tenants.get(room.card.uuid, [])
                ],
            )
            for room in state.rooms
        ]
        return InspectedNode(
            name=state.node.name,
            total_gpu=sum(card.total_gpu for card in cards),
            used_gpu=sum(card.used_gpu for card in cards),
            devs=cards,
        )
