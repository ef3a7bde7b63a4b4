"""Refusals: why a pod does not fit, exactly.

A refusal is an answer, so it is a value: one code, whether waiting can help (*not now*) or cannot
(*never*), and per card what is short and by how much. "Never" is not a second opinion: it means
that the same fitting fails on the same node with every card healthy and nobody on it.

The codes are ordered: a later one means the pod came further. For a whole fleet the refusal is that
of the node where it came furthest.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from partage.core import demands, fitting, plans, searching
from partage.core.rooms import NodeState, Room


class Code(enum.StrEnum):
    """What stands in the way, from the hopeless to the merely busy."""

    NO_NODES = "no-nodes"
    NO_CARDS = "no-cards"
    NODE_MODE = "node-mode"
    NO_SUCH_MODEL = "no-such-model"
    NO_SUCH_CARD = "no-such-card"
    TOO_MANY_CARDS = "too-many-cards"
    CARD_TOO_SMALL = "card-too-small"
    TOO_MUCH_TOGETHER = "too-much-together"
    # From here on, waiting can help.
    NODE_TAKEN = "node-taken"
    NODE_NOT_EMPTY = "node-not-empty"
    NEIGHBOUR = "neighbour"
    CARD_SICK = "card-sick"
    CARD_TAKEN = "card-taken"
    CARD_NOT_EMPTY = "card-not-empty"
    MEMORY = "memory"
    COMPUTE = "compute"
    TENANTS = "tenants"
    TOO_FEW_CARDS = "too-few-cards"
    ARRANGEMENT = "arrangement"


_ORDER = {code: place for place, code in enumerate(Code)}
_FIRST_NOT_NOW = _ORDER[Code.NODE_TAKEN]


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """What one card lacks for one container; ``short`` is in MiB, percent or tenants."""

    container: str
    uuid: str
    index: int
    code: Code
    asked: int = 0
    free: int = 0

    @property
    def short(self) -> int:
        """By how much."""
        return self.asked - self.free


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod does not fit on one node, or on any."""

    code: Code
    text: str
    node: str = ""  # the node it is about; for a whole fleet, where the pod came furthest
    shortages: tuple[Shortage, ...] = ()

    @property
    def never(self) -> bool:
        """Whether waiting cannot help."""
        return _ORDER[self.code] < _FIRST_NOT_NOW


def refuse(state: NodeState, plan: plans.Plan, policy: searching.CardPolicy) -> Refusal | None:
    """Why the pod does not fit on this node; None if it does."""
    if fitting.place(state, plan, policy) is not None:
        return None
    return explain(state, plan, policy)


def explain(state: NodeState, plan: plans.Plan, policy: searching.CardPolicy) -> Refusal:
    """Why the pod does not fit on a node on which it is known not to fit."""
    bare = state.emptied()
    if fitting.place(bare, plan, policy) is None:
        return _never(bare, plan)
    return _not_now(state, plan)


def furthest(refused: Iterable[Refusal]) -> Refusal:
    """The refusal of the node where the pod came furthest; the first of equals."""
    none = Refusal(code=Code.NO_NODES, text="there is no node")
    return max(refused, key=_closeness, default=none)


def _closeness(refusal: Refusal) -> tuple[int, int]:
    """Among equal codes, the smaller lack is nearer."""
    return _ORDER[refusal.code], -min((s.short for s in refusal.shortages), default=0)


def _never(bare: NodeState, plan: plans.Plan) -> Refusal:
    name = bare.node.name
    if not bare.rooms:
        return _plain(Code.NO_CARDS, name, f"node {name} has no cards")
    if not fitting.welcome(bare, plan.pod):
        modes = ", ".join(sorted(set(plan.pod.refused_by) & bare.node.traits))
        return _plain(Code.NODE_MODE, name, f"node {name} does not serve such requests ({modes})")
    for container, part in zip(plan.pod.containers, plan.parts, strict=True):
        if part.accepts is not None and not any(part.accepts(r.card) for r in bare.rooms):
            return _not_accepted(bare, container)
    for who, part in _asking(plan):
        reason = _too_large(bare, who, part)
        if reason is not None:
            return reason
    text = f"the containers together ask for more than node {name} has on its cards"
    return _plain(Code.TOO_MUCH_TOGETHER, name, text)


def _not_accepted(bare: NodeState, container: demands.ContainerDemand) -> Refusal:
    name, demand = bare.node.name, container.demand
    if any(plans.model_accepted(demand, room.card.model) for room in bare.rooms):
        text = f"{_who(container)} names cards that node {name} does not have"
        return _plain(Code.NO_SUCH_CARD, name, text)
    wanted = " or ".join(demand.models) or "any but " + ", ".join(demand.not_models)
    has = ", ".join(sorted({room.card.model or "unknown" for room in bare.rooms}))
    text = f"{_who(container)} wants model {wanted}; node {name} has {has}"
    return _plain(Code.NO_SUCH_MODEL, name, text)


def _too_large(bare: NodeState, who: str, part: plans.Part) -> Refusal | None:
    name = bare.node.name
    accepted = [r for r in bare.rooms if part.accepts is None or part.accepts(r.card)]
    if max(1, part.cards) > len(accepted):
        text = f"{who} asks for {part.cards} cards; node {name} has {len(accepted)} that qualify"
        return _plain(Code.TOO_MANY_CARDS, name, text)
    big = [room for room in accepted if room.memory_mib >= part.memory_mib(room.memory_mib)]
    if len(big) >= max(1, part.cards):
        return None
    largest = max((r for r in accepted if r not in big), key=lambda room: room.memory_mib)
    asked = part.memory_mib(largest.memory_mib)
    short = _shortage(who, largest, Code.MEMORY, asked, largest.memory_mib)
    where = f"the largest card of node {name} has" if not big else f"only {len(big)} of {name} have"
    text = f"{who} asks for {asked} MiB on {_cards(part)}; {where}"
    text += f" {largest.memory_mib} MiB" if not big else " that much"
    return Refusal(code=Code.CARD_TOO_SMALL, node=name, text=text, shortages=(short,))


def _not_now(state: NodeState, plan: plans.Plan) -> Refusal:
    name = state.node.name
    if state.whole_pods:
        return _plain(Code.NODE_TAKEN, name, f"a pod has node {name} for itself")
    if plan.pod.exclusive_node and state.grants:
        text = f"the whole node is asked for; {len(state.grants)} pods are on {name}"
        return _plain(Code.NODE_NOT_EMPTY, name, text)
    if not fitting.welcome(state, plan.pod):
        tags = ", ".join(sorted(tag for _, tag in plan.pod.apart_from if tag in state.tags))
        return _plain(
            Code.NEIGHBOUR, name, f"node {name} has pods that it may not stand beside ({tags})"
        )
    for who, part in _asking(plan):
        reason = _part_not_now(state, plan, who, part)
        if reason is not None:
            return reason
    text = f"each container fits on node {name} by itself, but not all at the same time"
    return _plain(Code.ARRANGEMENT, name, text)


def _part_not_now(state: NodeState, plan: plans.Plan, who: str, part: plans.Part) -> Refusal | None:
    fits = part.fitting(state.open_rooms, offline=plan.offline)
    wanted = len(state.rooms) if part.cards == demands.ALL_CARDS else part.cards
    if len(fits) >= wanted:
        return None
    happy = {room.position for room in fits}
    shortages = tuple(
        _lack(who, room, part, plan)
        for room in state.rooms
        if room.position not in happy and (part.accepts is None or part.accepts(room.card))
    )
    nearest = max(shortages, key=lambda s: (_ORDER[s.code], -s.short))
    if wanted > 1 and fits:
        text = f"{who} asks for {wanted} cards; {len(fits)} of node {state.node.name} have room"
        return Refusal(
            code=Code.TOO_FEW_CARDS, node=state.node.name, text=text, shortages=shortages
        )
    text = f"{who}: {_TEXTS[nearest.code].format(s=nearest)} on node {state.node.name}"
    return Refusal(code=nearest.code, node=state.node.name, text=text, shortages=shortages)


_TEXTS = {
    Code.CARD_SICK: "card {s.index} is not healthy",
    Code.CARD_TAKEN: "a pod has card {s.index} for itself",
    Code.CARD_NOT_EMPTY: "asks for a card of its own; card {s.index} is in use",
    Code.TENANTS: "card {s.index} takes no more tenants",
    Code.COMPUTE: "asks for {s.asked} % compute; card {s.index} has {s.free} %, {s.short} short,",
    Code.MEMORY: "asks for {s.asked} MiB; card {s.index} has {s.free} MiB, {s.short} short,",
}


def _lack(who: str, room: Room, part: plans.Part, plan: plans.Plan) -> Shortage:
    """The first thing this card lacks; health and exclusiveness come before amounts."""
    if not room.card.healthy:
        return _shortage(who, room, Code.CARD_SICK)
    if not room.open:
        return _shortage(who, room, Code.CARD_TAKEN)
    if part.whole:
        return _shortage(who, room, Code.CARD_NOT_EMPTY)
    need_mib = part.memory_mib(room.memory_mib)
    if room.free_mib < need_mib:
        return _shortage(who, room, Code.MEMORY, need_mib, room.free_mib)
    free_compute = room.free_offline if plan.offline else room.free_compute
    if part.compute_percent and free_compute < part.compute_percent:
        return _shortage(who, room, Code.COMPUTE, part.compute_percent, free_compute)
    limit = part.most_tenants - room.tenants if part.most_tenants else room.free_tenants
    return _shortage(who, room, Code.TENANTS, part.tenants, min(limit, room.free_tenants))


def _shortage(who: str, room: Room, code: Code, asked: int = 0, free: int = 0) -> Shortage:
    return Shortage(
        container=who, uuid=room.card.uuid, index=room.card.index, code=code, asked=asked, free=free
    )


def _asking(plan: plans.Plan) -> list[tuple[str, plans.Part]]:
    """Who asks: each container, or the pod as one where its containers share their cards."""
    containers = plan.pod.containers
    if plan.bundle is not None and len(containers) > 1:
        return [(f"the pod ({len(containers)} containers on the same cards)", plan.bundle)]
    return [(_who(c), part) for c, part in zip(containers, plan.parts, strict=True)]


def _who(container: demands.ContainerDemand) -> str:
    return f"container {container.name}" if container.name else "the container"


def _cards(part: plans.Part) -> str:
    return "one card" if part.cards == 1 else f"each of {part.cards or 'all'} cards"


def _plain(code: Code, node: str, text: str) -> Refusal:
    return Refusal(code=code, node=node, text=text)
