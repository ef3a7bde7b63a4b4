"""The verbs of gpushare's extender, answered as it answers them: a drop-in.

Names keep the order of the question, every rejected node has its reason, in gpushare's words, and
the cards within a node are chosen its way (least free memory that is enough, then lowest index)
where neither pod nor node says otherwise. Unlike there, pods of every dialect are served.
"""

from __future__ import annotations

import msgspec

from partage.core import demands, grants
from partage.core.rooms import NodeState
from partage.scheduler import deciding, texts, wire

VERSION = "0.1.0"  # what gpushare's extender answers
CARDS_BY = "binpack"
PATIENCE_S = 4.5  # its configuration names no httpTimeout, and kube-scheduler's own is 5 s

_ARGS = msgspec.json.Decoder(wire.Args)


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


class Gpushare:
    """Answers what gpushare's extender was asked."""

    def __init__(self, decider: deciding.Decider) -> None:
        self._decider = decider

    def filter(self, body: bytes) -> bytes:
        """Which of the nodes have a card with enough free memory."""
        try:
            args = wire.decode(_ARGS, body, "node_names", "nodes")
            return wire.encode(self._result(args))
        except wire.WireError as error:
            return wire.encode(wire.FilterResult(error=str(error)))

    def inspect(self, node: str = "") -> bytes:
        """What is granted on each card of one node, or of all that have cards."""
        world = self._decider.mirror.fleet
        if not node:
            there = (state for state in world.states() if state.rooms)
            states = sorted(there, key=lambda state: state.node.name)
            return wire.encode(Inspected([self._inspected(state) for state in states]))
        state = world.state(node)
        if state is None:
            return wire.encode(Inspected([], texts.GPUSHARE_NOT_FOUND.format(name=node)))
        return wire.encode(Inspected([self._inspected(state)]))

    def _result(self, args: wire.Args) -> wire.FilterResult:
        if args.pod is None:
            return wire.FilterResult(error="arg or pod is nil")
        names = args.node_names
        if names is None and args.nodes is not None:
            names = wire.names(args.nodes)
        if names is None:
            return wire.FilterResult(error="cannot get node names")
        verdict = self._decider.decide(args.pod, set(names), limit=0, cards_by=CARDS_BY)
        failed = self._failed(verdict, names)
        accepted = [name for name in names if name not in failed]
        return wire.FilterResult(
            nodes=_kept(args, accepted), node_names=accepted, failed_nodes=failed
        )

    def _failed(self, verdict: deciding.Verdict, names: list[str]) -> dict[str, str]:
        if verdict.wrong:
            return dict.fromkeys(names, verdict.wrong)
        if verdict.placed:
            text = texts.PLACED.format(node=verdict.placed)
            return {name: text for name in names if name != verdict.placed}
        fits = set(verdict.nodes)
        reasons = ((name, self._reason(name, fits, verdict.demand)) for name in names)
        return {name: reason for name, reason in reasons if reason}

    def _reason(self, name: str, fits: set[str], demand: demands.PodDemand | None) -> str:
        if name in fits:
            return ""
        state = self._decider.mirror.fleet.state(name)
        if state is None:
            return texts.GPUSHARE_NOT_FOUND.format(name=name)
        if not state.rooms:
            return texts.GPUSHARE_SKIP.format(name=name)
        if demand is None and any(room.card.healthy for room in state.rooms):
            return ""  # asking for nothing is possible wherever there is a card
        return texts.GPUSHARE_INSUFFICIENT

    def _inspected(self, state: NodeState) -> InspectedNode:
        unit = self._decider.mirror.settings.memory_unit_mib
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


def _kept(args: wire.Args, accepted: list[str]) -> dict[str, list[msgspec.Raw]] | None:
    """Whole nodes for a scheduler that sent whole nodes."""
    if args.nodes is None or args.node_names is not None:
        return None
    there = set(accepted)
    pairs = zip(wire.names(args.nodes), args.nodes.items, strict=True)
    return {"items": [item for name, item in pairs if name in there]}
