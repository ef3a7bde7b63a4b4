"""Refusals: why a pod does not fit, exactly.

A refusal is an answer, so it is a value: one code, whether waiting can help (*not now*) or cannot
(*never*), and per card what is short and by how much. "Never" is not a second opinion: it means
that the same fitting fails on the same node with every card healthy, none cordoned and no pod on
it.

The codes are ordered: a later one means the pod came further. For a whole fleet the refusal is that
of the node where it came furthest.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from partage.core import demands, totals
from partage.core.placement import arrangement, fitting, plans
from partage.core.placement.rooms import NodeState, Room


class Code(enum.StrEnum):
    """What stands in the way, from the hopeless to the merely busy."""

    NO_NODES = "no-nodes"
    NO_CARDS = "no-cards"
    NODE_MODE = "node-mode"
    NO_SUCH_MODEL = "no-such-model"
    NO_SUCH_CARD = "no-such-card"
    TOO_MANY_CARDS = "too-many-cards"
    MEMORY_UNKNOWN = "memory-unknown"
    CARD_TOO_SMALL = "card-too-small"
    TOO_MUCH_TOGETHER = "too-much-together"
    NAMESPACE_TOO_SMALL = "namespace-too-small"
    # From here on, waiting can help.
    NODE_TAKEN = "node-taken"
    NODE_NOT_EMPTY = "node-not-empty"
    NEIGHBOUR = "neighbour"
    CARD_UNHEALTHY = "card-unhealthy"
    CARD_CORDONED = "card-cordoned"
    CARD_TAKEN = "card-taken"
    SAME_GROUP = "same-group"
    CARD_NOT_EMPTY = "card-not-empty"
    MEMORY = "memory"
    COMPUTE = "compute"
    TENANTS = "tenants"
    TOO_FEW_CARDS = "too-few-cards"
    ARRANGEMENT = "arrangement"
    NOT_FOUND = "arrangement-not-found"
    NAMESPACE_FULL = "namespace-full"

    @property
    def never(self) -> bool:
        """Whether waiting cannot help."""
        return _ORDER[self] < _ORDER[Code.NODE_TAKEN]

    @property
    def distance(self) -> int:
        """How far the pod came: greater is further."""
        return _ORDER[self]


_ORDER = {code: place for place, code in enumerate(Code)}


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """What one card lacks for one container (no name: for all containers of the pod together)."""

    container: str
    uuid: str
    index: int
    code: Code
    asked: int = 0  # MiB, percent or tenants, as the code says
    free: int = 0
    short: int = 0  # by how much
    foreign_mib: int = 0  # what processes outside Partage use of the card


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod does not fit on one node, or on any."""

    code: Code
    never: bool  # whether waiting cannot help
    text: str
    node: str = ""  # the node it is about; for a whole fleet, where the pod came furthest
    shortages: tuple[Shortage, ...] = ()


def refusal(code: Code, node: str, text: str, shortages: tuple[Shortage, ...] = ()) -> Refusal:
    """A refusal; its code decides whether waiting can help."""
    return Refusal(code=code, never=code.never, text=text, node=node, shortages=shortages)


def over_total(excess: totals.Excess, node: str) -> Refusal:
    """The refusal of a pod that fits on a node, and whose namespace may not have so much."""
    code = Code.NAMESPACE_TOO_SMALL if excess.never else Code.NAMESPACE_FULL
    return refusal(code, node, excess.text)


def refuse(state: NodeState, plan: plans.Plan, policy: arrangement.CardPolicy) -> Refusal | None:
    """Why the pod does not fit on this node; None if it does."""
    if fitting.place(state, plan, policy) is not None:
        return None
    return explain(state, plan, policy)


def explain(state: NodeState, plan: plans.Plan, policy: arrangement.CardPolicy) -> Refusal:
    """Why the pod does not fit on a node on which it is known not to fit."""
    bare = state.emptied()
    if fitting.place(bare, plan, policy) is None:
        reason, tried = _never(bare, plan), bare
    else:
        reason, tried = _not_now(state, plan), state
    vague = reason.code in (Code.TOO_MUCH_TOGETHER, Code.ARRANGEMENT)
    if vague and arrangement.gives_up(tried, plan, policy):
        text = f"no arrangement of the containers on node {state.node.name} was found in time"
        return refusal(Code.NOT_FOUND, state.node.name, text)
    return reason


def furthest(refused: Iterable[Refusal]) -> Refusal:
    """The refusal of the node where the pod came furthest; the first of equals."""
    return max(refused, key=closeness, default=refusal(Code.NO_NODES, "", "there is no node"))


def closeness(refusal: Refusal) -> tuple[int, int]:
    """Among equal codes, the smaller lack is nearer."""
    return _ORDER[refusal.code], -min((s.short for s in refusal.shortages), default=0)


def _never(bare: NodeState, plan: plans.Plan) -> Refusal:
    name = bare.node.name
    if not bare.rooms:
        return refusal(Code.NO_CARDS, name, f"node {name} has no cards")
    if not fitting.welcome(bare, plan.pod):
        modes = ", ".join(sorted(set(plan.pod.refused_by) & bare.node.traits))
        return refusal(Code.NODE_MODE, name, f"node {name} does not serve such requests ({modes})")
    for container, part in zip(plan.pod.containers, plan.parts, strict=True):
        if part.accepts is not None and not any(part.accepts(r.card) for r in bare.rooms):
            return _not_accepted(bare, container)
    for requester in _requesters(plan):
        reason = _too_large(bare, requester)
        if reason is not None:
            return reason
    text = f"the containers together ask for more than node {name} has on its cards"
    return refusal(Code.TOO_MUCH_TOGETHER, name, text)


def _not_accepted(bare: NodeState, container: demands.ContainerDemand) -> Refusal:
    name, demand = bare.node.name, container.demand
    if any(plans.model_accepted(demand, room.card.model) for room in bare.rooms):
        text = f"{_who(container)} names cards that node {name} does not have"
        return refusal(Code.NO_SUCH_CARD, name, text)
    models = " or ".join(map(_named, demand.models))
    models = models or "any but " + ", ".join(map(_named, demand.not_models))
    has = ", ".join(sorted({room.card.model or "unknown" for room in bare.rooms}))
    text = f"{_who(container)} asks for model {models}; node {name} has {has}"
    return refusal(Code.NO_SUCH_MODEL, name, text)


def _named(pattern: str) -> str:
    """A pattern as people write it: a part of the name goes without its stars."""
    part = pattern.removeprefix("*").removesuffix("*")
    whole = pattern != f"*{part}*" or any(sign in part for sign in "*?[")
    return pattern if whole or not part else part


def _too_large(bare: NodeState, requester: _Requester) -> Refusal | None:
    name, who, part = bare.node.name, requester.who, requester.part
    accepted = [r for r in bare.rooms if part.accepts is None or part.accepts(r.card)]
    count = part.cards or len(bare.rooms)
    if count > len(accepted):
        text = f"{who} asks for {count} cards; node {name} has {len(accepted)} that qualify"
        return refusal(Code.TOO_MANY_CARDS, name, text)
    if not part.whole and count > sum(not room.card.whole_only for room in accepted):
        text = f"{who} asks for a share of a card; how much memory the cards of node {name} have is"
        text += " not known, so they are given whole or not at all"
        return refusal(Code.MEMORY_UNKNOWN, name, text)
    big = [room for room in accepted if room.memory_mib >= part.memory_mib(room.memory_mib)]
    if len(big) >= count:
        return None
    largest = max((r for r in accepted if r not in big), key=lambda room: room.memory_mib)
    asked_mib = part.memory_mib(largest.memory_mib)
    short = _shortage(requester, largest, Code.MEMORY, asked_mib, largest.memory_mib)
    those = "" if len(accepted) == len(bare.rooms) else " that qualifies"
    where = (
        f"only {len(big)} of {name} have" if big else f"the largest card of node {name}{those} has"
    )
    text = f"{who} asks for {asked_mib} MiB on {_cards(part)}; {where}"
    text += f" {largest.memory_mib} MiB" if not big else " that much"
    return refusal(Code.CARD_TOO_SMALL, name, text, (short,))


def _not_now(state: NodeState, plan: plans.Plan) -> Refusal:
    name = state.node.name
    if state.whole_pods:
        return refusal(Code.NODE_TAKEN, name, f"a pod has node {name} for itself")
    if plan.pod.exclusive_node and state.grants:
        count = len(state.grants)
        text = (
            f"the whole node is asked for; {count} {'pod is' if count == 1 else 'pods are'} on it"
        )
        return refusal(Code.NODE_NOT_EMPTY, name, text)
    if not fitting.welcome(state, plan.pod):
        tags = ", ".join(sorted(tag for _, tag in plan.pod.apart_from if tag in state.tags))
        return refusal(
            Code.NEIGHBOUR, name, f"node {name} has pods that this pod may not run beside ({tags})"
        )
    for requester in _requesters(plan):
        reason = _lacking(state, plan, requester)
        if reason is not None:
            return reason
    text = f"each container fits on node {name} by itself, but not all at the same time"
    return refusal(Code.ARRANGEMENT, name, text)


def _lacking(state: NodeState, plan: plans.Plan, requester: _Requester) -> Refusal | None:
    who, part = requester.who, requester.part
    fits = part.fitting(state.open_rooms, offline=plan.offline)
    count = len(state.rooms) if part.cards == demands.ALL_CARDS else part.cards
    if len(fits) >= count:
        return None
    happy = {room.position for room in fits}
    shortages = tuple(
        _lack(requester, room, plan)
        for room in state.rooms
        if room.position not in happy and (part.accepts is None or part.accepts(room.card))
    )
    nearest = max(shortages, key=lambda s: (_ORDER[s.code], -s.short))
    if count > 1 and fits:
        have = f"{len(fits)} of node {state.node.name} {'has' if len(fits) == 1 else 'have'} room"
        strangers = sum(_by_strangers(short) for short in shortages)
        text = f"{who} asks for {count} cards; {have}"
        text += f"; processes outside Partage use {strangers} of the others" if strangers else ""
        return refusal(Code.TOO_FEW_CARDS, state.node.name, text, shortages)
    text = f"{_told_of(requester, nearest)} on node {state.node.name}{_strangers_text(nearest)}"
    return refusal(nearest.code, state.node.name, text, shortages)


_NAMELESS = "it"
_TEXTS = {
    Code.CARD_UNHEALTHY: "card {s.index} is not healthy",
    Code.CARD_CORDONED: "card {s.index} is cordoned",
    Code.CARD_TAKEN: "a pod has card {s.index} for itself",
    Code.SAME_GROUP: "card {s.index} has another pod of its spread group",
    Code.CARD_NOT_EMPTY: "asks for a card of its own; card {s.index} is in use",
    Code.TENANTS: "card {s.index} takes no more tenants",
    Code.COMPUTE: "asks for {s.asked} % compute; card {s.index} has {s.free} %, {s.short} short,",
    Code.MEMORY: "asks for {s.asked} MiB; card {s.index} has {s.free} MiB, {s.short} short,",
}


def _told_of(requester: _Requester, short: Shortage) -> str:
    """What is short for whom; what has no name, such as a claim, is known from the context."""
    text = _shortage_text(short)
    if requester.who != _NAMELESS:
        return f"{requester.who}: {text}"
    return f"{_NAMELESS} {text}" if text.startswith("asks ") else text


def no_memory(short: Shortage) -> bool:
    """Whether a card has no memory at all, and that is what stands in the way."""
    return short.code is Code.MEMORY and short.asked == 1


def _shortage_text(short: Shortage) -> str:
    if no_memory(short):
        return f"card {short.index} has no memory free"
    return _TEXTS[short.code].format(s=short)


def _strangers_text(short: Shortage) -> str:
    """Who has a part of a card that is short, where no pod of the node explains it."""
    if not _by_strangers(short):
        return ""
    return f"; processes outside Partage use {short.foreign_mib} MiB of it"


def _by_strangers(short: Shortage) -> bool:
    return bool(short.foreign_mib) and short.code in (Code.MEMORY, Code.CARD_NOT_EMPTY)


def _lack(requester: _Requester, room: Room, plan: plans.Plan) -> Shortage:
    """The first thing this card lacks; health and exclusiveness come before amounts."""
    part = requester.part
    if not room.card.healthy:
        return _shortage(requester, room, Code.CARD_UNHEALTHY)
    if room.cordoned:
        return _shortage(requester, room, Code.CARD_CORDONED)
    if not room.open:
        return _shortage(requester, room, Code.CARD_TAKEN)
    if part.spread_group in room.groups:
        return _shortage(requester, room, Code.SAME_GROUP)
    if part.whole:
        return _shortage(requester, room, Code.CARD_NOT_EMPTY)
    need_mib = part.room_mib(room.memory_mib)
    if room.free_mib < need_mib:
        return _shortage(requester, room, Code.MEMORY, need_mib, room.free_mib)
    free_compute = room.free_offline if plan.offline else room.free_compute
    if part.compute_percent and free_compute < part.compute_percent:
        return _shortage(requester, room, Code.COMPUTE, part.compute_percent, free_compute)
    limit = part.most_tenants - room.tenants if part.most_tenants else room.free_tenants
    return _shortage(requester, room, Code.TENANTS, part.tenants, min(limit, room.free_tenants))


def _shortage(
    requester: _Requester, room: Room, code: Code, needed: int = 0, free: int = 0
) -> Shortage:
    return Shortage(
        container=requester.container,
        uuid=room.card.uuid,
        index=room.card.index,
        code=code,
        asked=needed,
        free=free,
        short=needed - free,
        foreign_mib=room.card.foreign_memory_mib,
    )


class _Requester(msgspec.Struct, frozen=True):
    """What asks for cards: a container, or a pod as a whole if its containers share cards."""

    container: str
    who: str
    part: plans.Part


def _requesters(plan: plans.Plan) -> list[_Requester]:
    containers = plan.pod.containers
    if plan.bundle is not None and len(containers) > 1:
        who = f"the pod ({len(containers)} containers on the same cards)"
        return [_Requester("", who, plan.bundle)]
    parts = zip(containers, plan.parts, strict=True)
    return [_Requester(container.name, _who(container), part) for container, part in parts]


def _who(container: demands.ContainerDemand) -> str:
    return f"container {container.name}" if container.name else _NAMELESS


def _cards(part: plans.Part) -> str:
    return "one card" if part.cards == 1 else f"each of {part.cards or 'all'} cards"
