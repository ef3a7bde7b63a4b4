"""Fitting: does a pod fit on a node, and on which of its cards.

There is one answer to that in all of Partage, and it is given here, card by card: the sum of a node
never stands for the room of one card. A policy only chooses among what fits.

Most pods ask for equal shares on one or more cards (one container, or containers that share their
cards) and take the short way here. Pods whose containers may be apart are searched
(:mod:`partage.core.placement.arrangement`).
"""

from __future__ import annotations

from partage.core import demands, grants
from partage.core.placement import arrangement, topology
from partage.core.placement.arrangement import CardPolicy, Chosen
from partage.core.placement.plans import Part, Plan
from partage.core.placement.rooms import NodeState, Room


def place(state: NodeState, plan: Plan, policy: CardPolicy) -> Chosen | None:
    """The cards of each container if the pod fits on the node, chosen by the policy."""
    if plan.picky and not welcome(state, plan.pod):
        return None
    if plan.bundle is not None:
        chosen = _place_bundle(state, plan, plan.bundle, policy)
        return None if chosen is None else (chosen,) * len(plan.parts)
    if not plan.parts:
        return None if state.whole_pods else ()
    return arrangement.search(state, plan, policy)


def welcome(state: NodeState, pod: demands.PodDemand) -> bool:
    """Whether the node, as a whole, accepts such a pod."""
    traits = state.node.traits
    if traits and any(trait in traits for trait in pod.refused_by):
        return False
    if pod.exclusive_node and state.grants:
        return False
    return not any(trait in traits and tag in state.tags for trait, tag in pod.apart_from)


def mixes(state: NodeState, plan: Plan, chosen: Chosen) -> bool:
    """Whether a chosen card holds pods of another quality of service."""
    others = plan.other_qos_bits
    if not state.qos_bits & others:
        return False
    return any(state.rooms[i].qos_bits & others for positions in chosen for i in positions)


def grant(
    state: NodeState,
    demand: demands.PodDemand,
    chosen: Chosen,
    *,
    pod: grants.Pod,
    policy: str,
) -> grants.Grant:
    """The record of a placement."""
    pairs = zip(demand.containers, chosen, strict=True)
    return grants.Grant(
        pod=pod,
        node=state.node.name,
        containers=tuple(_granted(state, *entry) for entry in pairs),
        dialect=demand.dialect,
        qos=demand.qos,
        tag=demand.tag,
        exclusive_node=demand.exclusive_node,
        policy=policy,
        spread_group=demand.spread_group,
    )


def _granted(
    state: NodeState, container: demands.ContainerDemand, positions: tuple[int, ...]
) -> grants.ContainerGrant:
    demand = container.demand
    part = Part(demand)
    shares = tuple(part.share(state.rooms[position].card) for position in positions)
    return grants.ContainerGrant(
        name=container.name,
        role=container.role,
        shares=shares,
        compute_ceiling_percent=demand.compute_ceiling_percent,
        compute_mode=demand.compute_mode,
        memory_enforced=demand.memory_enforced,
    )


def _place_bundle(
    state: NodeState, plan: Plan, part: Part, policy: CardPolicy
) -> tuple[int, ...] | None:
    # Of cards that look the same one is enough to look at, unless it matters which ones they are.
    any_of_kind = part.cards == 1 and not plan.by_uuid and not state.links
    rooms = part.fitting(state.kinds if any_of_kind else state.open_rooms, offline=plan.offline)
    if part.cards == demands.ALL_CARDS:
        everything = rooms and len(rooms) == len(state.rooms)
        return tuple(room.position for room in rooms) if everything else None
    if len(rooms) < part.cards:
        return None
    if state.qos_bits & plan.other_qos_bits:
        apart = [room for room in rooms if not room.qos_bits & plan.other_qos_bits]
        rooms = apart if len(apart) >= part.cards else rooms
    if len(rooms) == part.cards:
        return tuple([room.position for room in rooms])
    if state.links:
        return _linked(state, part, policy, rooms)
    if part.cards == 1:
        return (_best(rooms, part, policy).position,)
    return tuple(sorted(room.position for room in _sorted(rooms, part, policy)[: part.cards]))


def _best(rooms: list[Room], part: Part, policy: CardPolicy) -> Room:
    """The first of the rooms that the policy likes best; as min() would say, in half the time."""
    need_mib, percent, key = part.fixed_mib, part.compute_percent, policy.card_key
    if need_mib is None:
        return min(rooms, key=lambda r: key(r, part.memory_mib(r.memory_mib), percent))
    best = rooms[0]
    least = key(best, need_mib, percent)
    for room in rooms:
        this = key(room, need_mib, percent)
        if this < least:
            best, least = room, this
    return best


def _sorted(rooms: list[Room], part: Part, policy: CardPolicy) -> list[Room]:
    def key(room: Room) -> int:
        return policy.card_key(room, part.memory_mib(room.memory_mib), part.compute_percent)

    return sorted(rooms, key=key)


def _linked(state: NodeState, part: Part, policy: CardPolicy, rooms: list[Room]) -> tuple[int, ...]:
    """Several cards: the best-connected. One whole card: the one that is least connected."""
    ordered = [room.card.uuid for room in _sorted(rooms, part, policy)]
    position = {room.card.uuid: room.position for room in rooms}
    if part.cards > 1:
        chosen = topology.nearest(ordered, part.cards, state.links)
        return tuple(sorted(position[uuid] for uuid in chosen))
    if part.whole:
        return (position[min(ordered, key=lambda u: topology.pull(u, ordered, state.links))],)
    return (position[ordered[0]],)
