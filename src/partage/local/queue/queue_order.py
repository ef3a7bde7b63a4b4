"""The order of the queue: which of those that wait on one machine start now.

Higher priority comes first, then the earlier request. The queue is walked in that order.
A ticket that fits gets its grant, unless it would delay one ahead of it that cannot start yet; then
it is tried on the other cards (:mod:`partage.local.queue.delay` knows which are closed to it), and
else it waits for its turn. So small work fills the gaps that large work waits for, and large work
does not wait for ever.

Whether something fits, on which cards, and what is short, is for the core to say. A ticket that
could not start even if all holders ended (it can never fit, or its card is unhealthy, or others who
are not in the ledger fill it) delays nobody: it waits, and everybody passes it. So does a ticket
whose process is stopped (Ctrl-Z): it could not use a grant. It keeps its place, and is considered
again when the process goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from partage.core import demands, errors, grants, refusals
from partage.core.fleet import Fleet
from partage.core.placement import fitting, plans
from partage.core.placement.rooms import NodeState
from partage.local.queue import delay, refusal_texts


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """One that waits."""

    token: str
    name: str
    demand: demands.PodDemand  # of exactly one container
    priority: int
    seq: int
    stopped: bool = False  # whether its process is; then it is granted nothing


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket that has to wait, and for what."""

    ticket: Ticket
    place: int  # 1 is next
    refusal: refusals.Refusal | None  # what is short now; None: it waits its turn, or is stopped
    behind: str  # the name of a ticket that it may not delay; empty if it is itself short of room


class Settled(msgspec.Struct, frozen=True):
    """What became of a queue."""

    granted: tuple[grants.Grant, ...]
    waiting: tuple[Waiting, ...]  # in the order of the queue


def ordered(tickets: Iterable[Ticket]) -> list[Ticket]:
    """The queue, with the next one first."""
    return sorted(tickets, key=lambda ticket: (-ticket.priority, ticket.seq))


def settle(fleet: Fleet, node: str, tickets: Iterable[Ticket]) -> Settled:
    """Grant what can be granted now; the grants are in the fleet afterwards."""
    queue = ordered(tickets)
    walk = _Walk(fleet, _state(fleet, node), queue)
    for ticket in queue:
        walk.meet(ticket)
    return Settled(tuple(walk.granted), tuple(walk.waiting()))


def trial(
    fleet: Fleet, node: str, tickets: Iterable[Ticket], ticket: Ticket
) -> Waiting | grants.Grant:
    """What would become of a further ticket, at its place in the queue; nothing is changed."""
    before = set(fleet.uids())
    try:
        settled = settle(fleet, node, (*tickets, ticket))
    finally:
        for uid in set(fleet.uids()) - before:
            fleet.release(uid)
    for grant in settled.granted:
        if grant.pod.uid == ticket.token:
            return grant
    return next(waiting for waiting in settled.waiting if waiting.ticket == ticket)


def _state(fleet: Fleet, node: str) -> NodeState:
    state = fleet.state(node)
    if state is None:
        raise errors.LedgerError(
            f"the fleet has no node {node}",
            instead="look for its cards before the queue",
        )
    return state


class _Walk:
    """One walk along the queue.

    On the way room only gets less, and those ahead only get more. So a demand that has to wait
    answers for all of the same shape that come later.
    """

    def __init__(self, fleet: Fleet, state: NodeState, queue: Sequence[Ticket]) -> None:
        self.granted: list[grants.Grant] = []
        self._fleet = fleet
        self._state = state
        self._bare = NodeState(state.node)
        self._plans = {shape: plans.Plan(shape) for shape in set(map(_shape, queue))}
        self._delays = delay.Delays(state, [self._plans[_shape(ticket)] for ticket in queue])
        self._stuck: dict[demands.PodDemand, _Stuck] = {}  # by shape
        self._waiting: list[tuple[Ticket, _Stuck]] = []

    def meet(self, ticket: Ticket) -> None:
        """Grant what the ticket asks for, or let it wait."""
        shape = _shape(ticket)
        if ticket.stopped:
            self._waiting.append((ticket, _Stuck(self._plans[shape], "", startable=False)))
            return
        if shape not in self._stuck:
            decided = self._decide(ticket, self._plans[shape])
            if isinstance(decided, grants.Grant):
                self._fleet.admit(decided)
                self._delays.count(decided)
                self.granted.append(decided)
                return
            self._stuck[shape] = decided
        stuck = self._stuck[shape]
        self._waiting.append((ticket, stuck))
        if stuck.startable:
            self._delays.wait(ticket.name, stuck.plan)

    def waiting(self) -> Iterator[Waiting]:
        """Those that have to wait, and what is short now that all were met."""
        short: dict[_Stuck, refusals.Refusal | None] = {}
        for place, (ticket, stuck) in enumerate(self._waiting, start=1):
            if stuck not in short:
                has_room = stuck.behind or ticket.stopped
                short[stuck] = None if has_room else self._refuse(ticket.demand)
            yield Waiting(ticket=ticket, place=place, refusal=short[stuck], behind=stuck.behind)

    def _decide(self, ticket: Ticket, plan: plans.Plan) -> grants.Grant | _Stuck:
        policy = self._fleet.card_policy(self._state, plan.pod)
        chosen = fitting.place(self._state, plan, policy)
        closed = {} if chosen is None else self._delays.closed(plan)
        if closed:
            elsewhere = plans.Plan(_avoiding(plan.pod, closed))
            chosen = fitting.place(self._state, elsewhere, policy)
        if chosen is None:
            startable = fitting.place(self._bare, plan, policy) is not None
            return _Stuck(plan, next(iter(closed.values()), ""), startable)
        pod = grants.Pod(uid=ticket.token, namespace="", name=ticket.name)
        return fitting.grant(self._state, ticket.demand, chosen, pod=pod, policy=policy.name)

    def _refuse(self, demand: demands.PodDemand) -> refusals.Refusal:
        policy = self._fleet.card_policy(self._state, demand)
        refusal = refusals.explain(self._state, plans.Plan(demand), policy)
        return refusal_texts.on_this_machine(refusal, demand, self._state.node)


class _Stuck(msgspec.Struct, frozen=True, eq=False):
    """A shape of demand that has to wait."""

    plan: plans.Plan
    behind: str  # empty: it is short of room
    startable: bool  # if all holders ended


def _shape(ticket: Ticket) -> demands.PodDemand:
    return demands.shape(ticket.demand, False, False)


def _avoiding(demand: demands.PodDemand, uuids: Iterable[str]) -> demands.PodDemand:
    replace = msgspec.structs.replace
    (container,) = demand.containers
    narrowed = replace(container.demand, not_uuids=(*container.demand.not_uuids, *uuids))
    return replace(demand, containers=(replace(container, demand=narrowed),))
