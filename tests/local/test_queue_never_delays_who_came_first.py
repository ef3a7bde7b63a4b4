"""Whatever machine, holders and queue: what passes delays nobody, and what is harmless passes.

The real queue is played through, on real fleets: the holders end in every order, and the queue is
settled after each. Nothing here knows of loads or sums.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import hypothesis
import msgspec
from hypothesis import strategies as st

from partage.core import cards, demands, fleet, grants
from partage.core.placement.rooms import Room
from partage.core.policies import binpack
from partage.local.queue import queue_order, refusal_texts
from tests import examples

_MOST_ENDS = 4
_NEVER = 99
# Somebody passes in every sixth scene only, so many are looked at.
_many = hypothesis.settings(
    deadline=None,
    max_examples=examples.many(250),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)


class _Steady(binpack.Binpack):
    """A policy that nobody on a card can sway: the first card that fits.

    Others may choose another card for a ticket because of who passed it, and so come into the way
    of a third; what the queue promises is room.
    """

    name = "steady"

    def card_key(self, room: Room, memory_mib: int, compute_percent: int) -> int:
        return room.position


class _Scene(msgspec.Struct):
    """A machine, who is on it, and who waits."""

    node: cards.Node
    holders: list[grants.Grant]
    queue: list[queue_order.Ticket]  # in order


@st.composite
def _nodes(draw: st.DrawFn) -> cards.Node:
    return cards.Node(
        name="n0",
        cards=tuple(
            cards.Card(
                uuid=f"g{index}",
                index=index,
                memory_mib=draw(st.sampled_from([16, 16, 24])),
                model=draw(st.sampled_from(["A30", "A30", "T4"])),
                healthy=draw(st.integers(0, 15)) != 15,
                max_tenants=draw(st.sampled_from([1024, 1024, 3, 2])),
                foreign_memory_mib=draw(st.sampled_from([0, 0, 0, 3])),
            )
            for index in range(draw(st.sampled_from([1, 2, 2, 3])))
        ),
    )


@st.composite
def _demands(draw: st.DrawFn, sizes_mib: Sequence[int], *, odd: bool = True) -> demands.Demand:
    """Mostly memory of one card; ``odd`` ones are not told by sums alone."""
    kind = draw(st.sampled_from(["mib"] * 9 + ["compute", "percent", "whole"]))
    count = draw(st.sampled_from([1, 1, 1, 1, 1, 2]))
    count = demands.ALL_CARDS if odd and draw(st.integers(0, 19)) == 19 else count
    models = draw(st.sampled_from([(), (), (), ("A30",)]))
    compute = draw(st.sampled_from([0, 0, 0, 20, 45]))
    if kind == "whole":
        return demands.Demand(cards=count, exclusive=demands.Exclusive.CARD, models=models)
    if kind == "compute":
        return demands.Demand(cards=count, compute_percent=draw(st.integers(1, 90)))
    size_mib = draw(st.sampled_from(sizes_mib))
    if kind == "percent":
        percent = size_mib * 5
        return demands.Demand(cards=count, memory_percent=percent, compute_percent=compute)
    return demands.Demand(
        cards=count,
        memory_mib=size_mib,
        compute_percent=compute,
        max_tenants=draw(st.sampled_from([0, 0, 0, 0, 0, 0, 2, 3])) if odd else 0,
        models=models,
    )


_LARGE, _SMALL, _HELD = range(7, 17), range(1, 6), range(3, 10)


@st.composite
def _scenes(
    draw: st.DrawFn, *, tickets: int = 5, odd: bool = True, qos: Sequence[demands.Qos] = ()
) -> _Scene:
    """A crowded machine; in the queue the first wants much, and others little."""
    node = draw(_nodes())
    kinds = st.sampled_from(list(qos) or [demands.Qos.NORMAL])
    machine = _fleet(node, ())
    for which in range(draw(st.integers(2, _MOST_ENDS))):
        demand = draw(_demands(_HELD, odd=odd))
        if demand.cards == 1:
            demand = msgspec.structs.replace(
                demand, uuids=(draw(st.sampled_from(node.cards)).uuid,)
            )
        machine.hold(grants.Pod(f"h{which}"), _pod(demand, draw(kinds)), "n0", expires_at=0)
    queue = [_ticket(0, _pod(draw(_demands(_LARGE, odd=odd)), draw(kinds)))]
    for seq in range(1, draw(st.integers(2, tickets))):
        sizes = draw(st.sampled_from([_LARGE, _SMALL, _SMALL]))
        queue.append(_ticket(seq, _pod(draw(_demands(sizes, odd=odd)), draw(kinds))))
    return _Scene(node, list(machine.all_grants()), queue)


def _ticket(seq: int, demand: demands.PodDemand) -> queue_order.Ticket:
    return queue_order.Ticket(token=f"k{seq}", name=f"t{seq}", demand=demand, priority=0, seq=seq)


def _pod(demand: demands.Demand, qos: demands.Qos = demands.Qos.NORMAL) -> demands.PodDemand:
    return demands.PodDemand(containers=(demands.ContainerDemand("main", demand),), qos=qos)


def _fleet(
    node: cards.Node, granted: Iterable[grants.Grant], policy: str = "steady"
) -> fleet.Fleet:
    machine = fleet.standard() if policy != "steady" else fleet.Fleet(_Steady())
    machine.set_node(node)
    for grant in granted:
        machine.admit(grant)
    return machine


def _start(
    scene: _Scene,
    granted: list[grants.Grant],
    queue: list[queue_order.Ticket],
    ends: Iterable[str],
    policy: str,
) -> int:
    """After how many ends the last of a queue starts."""
    machine = _fleet(scene.node, granted, policy)
    last = queue[-1].token
    for step, uid in enumerate(ends, start=1):
        machine.release(uid)
        settled = queue_order.settle(machine, "n0", queue)
        queue = [waiting.ticket for waiting in settled.waiting]
        if not queue or queue[-1].token != last:
            return step
    return _NEVER


def _check_no_delay(scene: _Scene, first: int, settled: queue_order.Settled, policy: str) -> None:
    """The ticket at a place of the queue starts as early as if nobody behind it had started."""
    ahead = {ticket.token for ticket in scene.queue[:first]}
    before = [*scene.holders, *(g for g in settled.granted if g.pod.uid in ahead)]
    passed = [grant for grant in settled.granted if grant.pod.uid not in ahead]
    started = {grant.pod.uid for grant in settled.granted}
    waiting = [t for t in scene.queue[: first + 1] if t.token not in started]
    ends = [grant.pod.uid for grant in before][:_MOST_ENDS]
    for order in itertools.permutations(ends):
        alone = _start(scene, before, waiting, order, policy)
        beside = _start(scene, [*before, *passed], waiting, order, policy)
        assert beside <= alone, (order, scene.queue[first].name)


def _stuck(scene: _Scene, settled: queue_order.Settled) -> Iterator[int]:
    """The places in the queue of those that wait while somebody behind them started."""
    waiting = {item.ticket.token for item in settled.waiting}
    starts = [place for place, ticket in enumerate(scene.queue) if ticket.token not in waiting]
    for place, ticket in enumerate(scene.queue):
        if ticket.token in waiting and any(start > place for start in starts):
            yield place


@_many
@hypothesis.given(_scenes())
def test_nobody_who_waits_starts_later_for_those_who_pass(scene: _Scene) -> None:
    """In every order in which holders end, each ticket starts no later than without passers."""
    settled = queue_order.settle(_fleet(scene.node, scene.holders), "n0", scene.queue)
    for place in _stuck(scene, settled):
        _check_no_delay(scene, place, settled, "steady")


@_many
@hypothesis.given(_scenes(qos=tuple(demands.Qos)))
def test_the_first_that_waits_never_starts_later_by_any_policy(scene: _Scene) -> None:
    """The same for the first of those that wait, with prices, and with all kinds of service."""
    settled = queue_order.settle(_fleet(scene.node, scene.holders, "priced"), "n0", scene.queue)
    for place in itertools.islice(_stuck(scene, settled), 1):
        _check_no_delay(scene, place, settled, "priced")


@_many
@hypothesis.given(_scenes(tickets=2, odd=False))
def test_the_second_passes_exactly_where_it_is_harmless(scene: _Scene) -> None:
    """It is kept from a card only if some of the holders could end so that the first is delayed."""
    first, second = scene.queue
    settled = queue_order.settle(_fleet(scene.node, scene.holders), "n0", scene.queue)
    first_waits = settled.waiting and settled.waiting[0].ticket is first
    if not first_waits or not _fits(scene.node, scene.holders, second):
        return
    could_start = _fits(scene.node, (), first)
    harmful = {
        card.uuid
        for card in scene.node.cards
        if could_start and _harmful(scene, card.uuid, first, second)
    }
    if settled.granted:
        taken = grants.takings(settled.granted[0])
        assert not harmful & taken.keys()
    else:
        assert not _fits(scene.node, scene.holders, _narrowed(second, not_uuids=tuple(harmful)))
        assert settled.waiting[1].behind == first.name


def _harmful(
    scene: _Scene, uuid: str, first: queue_order.Ticket, second: queue_order.Ticket
) -> bool:
    """Whether on this card the first fits beside some of the holders, but not with the second."""
    narrow_first, narrow_second = (
        _narrowed(ticket, cards=1, uuids=(uuid,)) for ticket in (first, second)
    )
    if not _fits(scene.node, scene.holders, narrow_second):
        return False
    for count in range(len(scene.holders) + 1):
        for remain in itertools.combinations(scene.holders, count):
            machine = _fleet(scene.node, remain)
            if machine.place(narrow_first.demand, "n0") is not None:
                machine.hold(grants.Pod("second"), narrow_second.demand, "n0", expires_at=0)
                if machine.place(narrow_first.demand, "n0") is None:
                    return True
    return False


def _fits(node: cards.Node, granted: Iterable[grants.Grant], ticket: queue_order.Ticket) -> bool:
    return _fleet(node, granted).place(ticket.demand, "n0") is not None


def _narrowed(ticket: queue_order.Ticket, **terms: object) -> queue_order.Ticket:
    (container,) = ticket.demand.containers
    demand = msgspec.structs.replace(container.demand, **terms)
    return msgspec.structs.replace(ticket, demand=_pod(demand, ticket.demand.qos))


@_many
@hypothesis.given(_scenes(tickets=8, qos=tuple(demands.Qos)))
def test_no_card_is_given_away_twice(scene: _Scene) -> None:
    """Whatever is granted fits, counts in the fleet, and leaves nobody unmentioned."""
    machine = _fleet(scene.node, scene.holders, "priced")
    settled = queue_order.settle(machine, "n0", scene.queue)
    state = machine.state("n0")
    assert state is not None
    for room in state.rooms:
        use = state.uses.get(room.card.uuid)
        assert min(room.free_mib, room.free_compute, room.free_offline, room.free_tenants) >= 0
        assert use is None or not use.exclusive or use.tenants == 1
    granted = [grant.pod.uid for grant in settled.granted]
    waiting = [item.ticket.token for item in settled.waiting]
    assert sorted(granted + waiting) == [ticket.token for ticket in scene.queue]
    assert [machine.grant_of(uid) for uid in granted] == list(settled.granted)


@_many
@hypothesis.given(_scenes(tickets=8, qos=tuple(demands.Qos)), st.permutations(range(8)))
def test_what_is_said_of_a_ticket_is_true(scene: _Scene, listed: list[int]) -> None:
    """Places count up; a reason is given if it does not fit now, else who it may not delay."""
    machine = _fleet(scene.node, scene.holders, "priced")
    mixed = [scene.queue[i] for i in listed if i < len(scene.queue)]
    settled = queue_order.settle(machine, "n0", mixed)
    names: list[str] = []
    for place, in_queue in enumerate(settled.waiting, start=1):
        assert in_queue.place == place
        demand = in_queue.ticket.demand
        refused = [
            refusal_texts.on_this_machine(refusal, demand, scene.node)
            for refusal in machine.refuse(demand)
        ]
        assert in_queue.refusal == next(iter(refused), None)
        assert in_queue.behind in names if in_queue.refusal is None else not in_queue.behind
        names.append(in_queue.ticket.name)
    assert names == [t.name for t in scene.queue if t.name in names]


@_many
@hypothesis.given(_scenes(tickets=8))
def test_nobody_is_judged_by_who_comes_later(scene: _Scene) -> None:
    """A further ticket at the end changes nothing for the others, and is judged as told before."""
    *others, last = scene.queue
    machine = _fleet(scene.node, scene.holders)
    answer = queue_order.trial(machine, "n0", others, last)
    assert list(machine.all_grants()) == scene.holders
    without = queue_order.settle(machine, "n0", others)
    settled = queue_order.settle(_fleet(scene.node, scene.holders), "n0", scene.queue)
    assert settled.granted[: len(without.granted)] == without.granted
    assert answer in (*settled.granted[len(without.granted) :], *settled.waiting[-1:])
