"""Who starts next on one machine: first come, first served, and small work in the gaps."""

from __future__ import annotations

import msgspec
import pytest

from partage.core import cards, demands, errors, fleet, grants, refusals
from partage.local.queue import delay, queue_order
from tests.core import small_fleets

GIB = small_fleets.GIB


def _machine(*gib: int, **facts: object) -> fleet.Fleet:
    return small_fleets.fleet_of(small_fleets.node("n0", *[size * GIB for size in gib], **facts))


def _hold(machine: fleet.Fleet, card: int, **terms: object) -> None:
    """Somebody is on a card."""
    demand = demands.Demand(uuids=(f"n0/{card}",), **terms)  # type: ignore[arg-type]
    small_fleets.grant(machine, f"holder-{len(set(machine.uids()))}", small_fleets.pod(demand))


def _queue(*queued: demands.Demand) -> list[queue_order.Ticket]:
    """Tickets t0, t1 and so on, in the order in which they came."""
    return [_ticket(seq, demand) for seq, demand in enumerate(queued)]


def _ticket(
    seq: int,
    demand: demands.Demand,
    *,
    priority: int = 0,
    qos: demands.Qos = demands.Qos.NORMAL,
    apart_from: tuple[tuple[str, str], ...] = (),
) -> queue_order.Ticket:
    pod_demand = small_fleets.pod(demand, qos=qos, apart_from=apart_from)
    name = f"t{seq}"
    return queue_order.Ticket(
        token=f"k{seq}", name=name, demand=pod_demand, priority=priority, seq=seq
    )


def _share(gib: int, **more: object) -> demands.Demand:
    return small_fleets.share(gib * GIB, **more)


def _settle(machine: fleet.Fleet, tickets: list[queue_order.Ticket]) -> tuple[list[str], list[str]]:
    """The names of those that start, and of those that wait."""
    settled = queue_order.settle(machine, "n0", tickets)
    return (
        [grant.pod.name for grant in settled.granted],
        [waiting.ticket.name for waiting in settled.waiting],
    )


def _behind(machine: fleet.Fleet, tickets: list[queue_order.Ticket]) -> dict[str, str]:
    """Whom each that waits may not delay."""
    settled = queue_order.settle(machine, "n0", tickets)
    return {waiting.ticket.name: waiting.behind for waiting in settled.waiting}


def test_equals_start_in_the_order_in_which_they_came() -> None:
    """Of equal tickets those that came first get the room, in whatever order they are listed."""
    tickets = _queue(_share(6), _share(6), _share(6))
    assert _settle(_machine(16), tickets[::-1]) == (["t0", "t1"], ["t2"])


def test_higher_priority_comes_first() -> None:
    """Priority goes before the time of coming, and only then does that count."""
    tickets = [_ticket(seq, _share(6), priority=seq // 2) for seq in range(4)]
    assert [t.name for t in queue_order.ordered(tickets)] == ["t2", "t3", "t0", "t1"]
    assert _settle(_machine(16), tickets) == (["t2", "t3"], ["t0", "t1"])


def test_a_grant_is_the_tickets_and_is_in_the_fleet() -> None:
    """What was granted names its ticket, keeps how it is enforced, and is counted."""
    machine = _machine(16)
    share = _share(
        4,
        compute_percent=20,
        compute_ceiling_percent=50,
        compute_mode=demands.ComputeMode.BURST,
        memory_enforced=False,
    )
    (grant,) = queue_order.settle(machine, "n0", _queue(share)).granted
    assert grant.pod == grants.Pod(uid="k0", namespace="", name="t0")
    (container,) = grant.containers
    assert container.compute_mode is demands.ComputeMode.BURST
    assert (container.compute_ceiling_percent, container.memory_enforced) == (50, False)
    assert machine.grant_of("k0") == grant


def test_small_work_passes_where_it_is_harmless() -> None:
    """Two cards of 16 GiB with 10 taken on each: 4 GiB may go before 10, which it leaves room."""
    machine = _machine(16, 16)
    _hold(machine, 0, memory_mib=10 * GIB)
    _hold(machine, 1, memory_mib=10 * GIB)
    assert _settle(machine, _queue(_share(10), _share(4))) == (["t1"], ["t0"])


def test_small_work_waits_where_it_would_delay() -> None:
    """Holders of 8 and 6 on 16 GiB: when 8 end, 9 fit, but not beside 2 more."""
    machine = _machine(16)
    _hold(machine, 0, memory_mib=8 * GIB)
    _hold(machine, 0, memory_mib=6 * GIB)
    settled = queue_order.settle(machine, "n0", _queue(_share(9), _share(2)))
    assert settled.granted == ()
    large, small = settled.waiting
    assert (large.place, large.behind) == (1, "")
    assert large.refusal is not None
    assert large.refusal.code is refusals.Code.MEMORY
    assert (small.place, small.refusal, small.behind) == (2, None, "t0")


def test_exactly_what_is_left_over_may_pass() -> None:
    """Holders of 8 and 6 on 16 GiB leave 1 GiB whenever 9 can start, and not a MiB more."""
    for small_mib, passes in ((GIB, True), (GIB + 1, False)):
        machine = _machine(16)
        _hold(machine, 0, memory_mib=8 * GIB)
        _hold(machine, 0, memory_mib=6 * GIB)
        started, _ = _settle(machine, _queue(_share(9), small_fleets.share(small_mib)))
        assert started == ["t1"] * passes


def test_those_that_pass_add_up() -> None:
    """Each may pass by itself, both may not: the second finds the first in its way."""
    machine = _machine(16)
    _hold(machine, 0, memory_mib=10 * GIB)
    tickets = _queue(_share(12), _share(3), _share(2), _share(1))
    assert _settle(machine, tickets) == (["t1", "t3"], ["t0", "t2"])


def test_compute_is_looked_at_like_memory() -> None:
    """A ticket that waits for compute is not delayed by somebody who takes it."""
    machine = _machine(16)
    _hold(machine, 0, memory_mib=GIB, compute_percent=50)
    tickets = _queue(
        _share(1, compute_percent=80),
        _share(1, compute_percent=30),
        _share(1, compute_percent=20),
        _share(1),
    )
    assert _settle(machine, tickets) == (["t2", "t3"], ["t0", "t1"])


def test_a_seat_is_looked_at_like_memory() -> None:
    """On a card for two tenants, the seat that becomes free belongs to who waits for it."""
    machine = _machine(16, max_tenants=2)
    _hold(machine, 0, memory_mib=12 * GIB)
    assert _settle(machine, _queue(_share(5), _share(1))) == (["t1"], ["t0"])
    # Both seats are wanted now: one by the first, one by the second beside it.
    machine = _machine(16, max_tenants=2)
    _hold(machine, 0, memory_mib=12 * GIB)
    assert _settle(machine, _queue(_share(5), _share(6), _share(1))) == ([], ["t0", "t1", "t2"])


def test_nobody_passes_one_that_wants_a_whole_card() -> None:
    """A card that an exclusive ticket waits for is closed, however little is asked for."""
    machine = _machine(16)
    _hold(machine, 0, memory_mib=GIB)
    tickets = _queue(small_fleets.whole(), small_fleets.share(1))
    assert _behind(machine, tickets) == {"t0": "", "t1": "t0"}


def test_one_that_wants_a_whole_card_passes_nobody_who_can_use_it() -> None:
    """An exclusive ticket takes an empty card only if nobody ahead waits for it."""
    first = _share(10, cards=2)
    for models, passes in (((), False), (("T4",), True)):
        machine = small_fleets.fleet_of(
            cards.Node(
                name="n0",
                cards=tuple(
                    cards.Card(uuid=f"n0/{i}", index=i, memory_mib=16 * GIB, model=model)
                    for i, model in enumerate(["T4", "T4", "A30"])
                ),
            )
        )
        _hold(machine, 0, memory_mib=10 * GIB)
        _hold(machine, 1, memory_mib=10 * GIB)
        large = msgspec.structs.replace(first, models=models or ("*",), cards=2)
        started, _ = _settle(machine, _queue(large, small_fleets.whole()))
        assert started == ["t1"] * passes


def test_another_card_is_tried_where_the_policys_choice_would_delay() -> None:
    """Binpack would take the fullest card, which somebody waits for; another one is harmless."""
    machine = _machine(16, 24, 32)
    _hold(machine, 0, memory_mib=8 * GIB)
    waits_for_the_first = _share(12, uuids=("n0/0",))
    tickets = _queue(waits_for_the_first, _share(6), _share(6, not_uuids=("n0/1",)))
    settled = queue_order.settle(machine, "n0", tickets)
    assert [small_fleets.places(grant) for grant in settled.granted] == [[[1]], [[2]]]


def test_several_cards_are_closed_one_by_one() -> None:
    """Two cards may be passed on only if neither delays; one that does is left out."""
    machine = _machine(16, 16, 16)
    _hold(machine, 0, memory_mib=8 * GIB)
    waits_for_the_first = _share(12, uuids=("n0/0",))
    settled = queue_order.settle(machine, "n0", _queue(waits_for_the_first, _share(6, cards=2)))
    assert [small_fleets.places(grant) for grant in settled.granted] == [[[1, 2]]]
    assert _behind(machine, _queue(waits_for_the_first, _share(6, cards=3))) == {
        "t0": "",
        "t1": "t0",
    }


def test_a_ticket_for_several_cards_is_delayed_on_each_of_them() -> None:
    """A ticket that waits for two cards keeps room on the one that is free already."""
    machine = _machine(16, 16)
    _hold(machine, 0, memory_mib=10 * GIB)
    tickets = _queue(_share(12, cards=2), _share(4), _share(5))
    started, waiting = _settle(machine, tickets)
    assert (started, waiting) == (["t1"], ["t0", "t2"])


def test_cards_that_one_does_not_want_are_open() -> None:
    """A card of another model, or too small, or not named, or unhealthy, is nobody's who waits."""
    large = _share(12)
    for facts, first_demand in (
        ({"model": "T4"}, msgspec.structs.replace(large, models=("A30",))),
        ({"memory_mib": 11 * GIB}, large),
        ({}, msgspec.structs.replace(large, uuids=("n0/0",))),
        ({}, msgspec.structs.replace(large, not_uuids=("n0/1",))),
        ({"foreign_memory_mib": 5 * GIB}, large),
    ):
        node = small_fleets.node("n0", 16 * GIB, 16 * GIB, model="A30")
        other = msgspec.structs.replace(node.cards[1], **facts)
        machine = small_fleets.fleet_of(msgspec.structs.replace(node, cards=(node.cards[0], other)))
        _hold(machine, 0, memory_mib=8 * GIB)
        settled = queue_order.settle(machine, "n0", _queue(first_demand, _share(8)))
        assert [small_fleets.places(grant) for grant in settled.granted] == [[[1]]], facts


def test_all_cards_and_the_whole_node_are_passed_by_nobody() -> None:
    """A ticket that waits for every card closes every card."""
    node = demands.Demand(cards=demands.ALL_CARDS, exclusive=demands.Exclusive.NODE)
    for everything in (node, _share(10, cards=demands.ALL_CARDS)):
        machine = _machine(16, 16)
        _hold(machine, 0, memory_mib=10 * GIB)
        assert _behind(machine, _queue(everything, small_fleets.share(1))) == {"t0": "", "t1": "t0"}


def test_offline_work_and_limits_of_tenants_are_not_guessed_at() -> None:
    """Where sums would not tell enough, nobody passes."""
    normal, offline = demands.Qos.NORMAL, demands.Qos.OFFLINE
    large, limited = _share(10), _share(10, max_tenants=9)
    for ahead, behind, holder, started in (
        (_ticket(0, large), _ticket(1, _share(1)), normal, ["t1"]),
        (_ticket(0, large, qos=offline), _ticket(1, _share(1)), normal, []),
        (_ticket(0, large), _ticket(1, _share(1), qos=offline), normal, []),
        (_ticket(0, large), _ticket(1, _share(1)), offline, []),
        (_ticket(0, limited), _ticket(1, _share(1)), normal, []),
    ):
        machine = _machine(16)
        small_fleets.grant(machine, "holder", small_fleets.pod(_share(10), qos=holder))
        assert _settle(machine, [ahead, behind])[0] == started


def test_each_dimension_has_its_own_worst_case() -> None:
    """Beside one holder memory is nearly short, beside another compute: both are looked at."""
    for memory_gib, compute_percent, passes in ((3, 0, False), (1, 20, False), (1, 10, True)):
        machine = _machine(16)
        _hold(machine, 0, memory_mib=6 * GIB)
        _hold(machine, 0, memory_mib=3 * GIB, compute_percent=40)
        small = _share(memory_gib, compute_percent=compute_percent)
        started, _ = _settle(machine, _queue(_share(8, compute_percent=50), small))
        assert started == ["t1"] * passes, small


def test_those_that_cannot_be_there_together_do_not_count_together() -> None:
    """The first has no compute beside the holder of 60 %, so the second never meets both."""
    machine = _machine(16)
    _hold(machine, 0, memory_mib=4 * GIB, compute_percent=60)
    _hold(machine, 0, memory_mib=10 * GIB)
    tickets = _queue(_share(4, compute_percent=50), _share(7), _share(2))
    assert _settle(machine, tickets) == (["t2"], ["t0", "t1"])


def test_who_asks_for_next_to_nothing_does_not_fit_beside_an_exclusive_one() -> None:
    """One percent of a tiny card is no MiB at all, and still is not had on somebody else's card."""
    machine = small_fleets.fleet_of(small_fleets.node("n0", 50, 50))
    small_fleets.grant(machine, "holder", small_fleets.pod(small_fleets.whole()))
    nothing = demands.Demand(cards=2, memory_percent=1)
    assert _behind(machine, _queue(nothing, small_fleets.whole())) == {"t0": "", "t1": "t0"}


def test_the_one_that_waits_longest_is_named() -> None:
    """Of several that one would delay, on several cards, the first in the queue is named."""
    machine = _machine(16, 16)
    _hold(machine, 0, memory_mib=8 * GIB)
    _hold(machine, 1, memory_mib=8 * GIB)
    tickets = _queue(_share(16, uuids=("n0/1",)), _share(16, uuids=("n0/0",)), _share(1))
    assert _behind(machine, tickets)["t2"] == "t0"


def test_neighbours_that_one_may_not_stand_beside_keep_all_away() -> None:
    """A ticket that minds its neighbours on the node is passed by none there."""
    node = msgspec.structs.replace(small_fleets.node("n0", 16 * GIB), traits=frozenset({"mode"}))
    minds = _ticket(0, _share(10), apart_from=(("mode", "other"),))
    for traits, started in ((node.traits, []), (frozenset(), ["t1"])):
        machine = small_fleets.fleet_of(msgspec.structs.replace(node, traits=traits))
        _hold(machine, 0, memory_mib=10 * GIB)
        assert _settle(machine, [minds, _ticket(1, _share(1))])[0] == started


def test_one_that_can_never_start_is_passed_by_everybody() -> None:
    """A ticket for a card that is gone waits, says so, and closes nothing."""
    machine = _machine(16, 16)
    tickets = _queue(_share(10, cards=3), small_fleets.whole(), _share(16))
    settled = queue_order.settle(machine, "n0", tickets)
    assert [grant.pod.name for grant in settled.granted] == ["t1", "t2"]
    (waiting,) = settled.waiting
    assert waiting.refusal is not None
    assert waiting.refusal.never


def test_one_that_no_ending_holder_would_help_is_passed_by_everybody() -> None:
    """A ticket that waits for an unhealthy card to recover keeps nobody from the healthy one."""
    node = small_fleets.node("n0", 16 * GIB, 16 * GIB)
    unhealthy = msgspec.structs.replace(node.cards[1], healthy=False)
    machine = small_fleets.fleet_of(msgspec.structs.replace(node, cards=(node.cards[0], unhealthy)))
    assert _settle(machine, _queue(small_fleets.whole(2), small_fleets.whole())) == (["t1"], ["t0"])


def test_each_of_a_shape_is_protected() -> None:
    """After a holder of 11 ends, two of 6 start on 16 GiB; 5 more would delay the second."""
    machine = _machine(16)
    _hold(machine, 0, memory_mib=11 * GIB)
    assert _settle(machine, _queue(_share(6), _share(5))) == (["t1"], ["t0"])
    machine = _machine(16)
    _hold(machine, 0, memory_mib=11 * GIB)
    tickets = _queue(_share(6), _share(6), _share(5))
    assert _behind(machine, tickets) == {"t0": "", "t1": "", "t2": "t1"}


def test_one_that_waits_for_its_turn_is_protected_too() -> None:
    """A ticket that may not pass keeps its place: those behind it may not take its room."""
    machine = _machine(16, 16)
    _hold(machine, 0, memory_mib=8 * GIB)
    large, middle = _share(16, uuids=("n0/0",)), _share(8, uuids=("n0/0",))
    tickets = _queue(large, middle, _share(1, uuids=("n0/0",)), _share(1))
    assert _behind(machine, tickets) == {"t0": "", "t1": "t0", "t2": "t0"}


def test_beyond_what_can_be_counted_nobody_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many shapes ahead, or too many different loads, close a card to those behind."""
    tickets = _queue(*[small_fleets.share(12 * GIB + i) for i in range(3)], _share(1))
    for limit, passes in (("", True), ("MOST_SHAPES", False), ("MOST_RESTS", False)):
        machine = _machine(16)
        _hold(machine, 0, memory_mib=6 * GIB)
        with monkeypatch.context() as patch:
            if limit:
                patch.setattr(delay, limit, 1)
            assert _settle(machine, tickets)[0] == ["t3"] * passes, limit


def test_a_further_ticket_is_judged_without_changing_anything() -> None:
    """What would become of a ticket is told at its place in the queue, and nothing is granted."""
    machine = _machine(16)
    _hold(machine, 0, memory_mib=8 * GIB)
    _hold(machine, 0, memory_mib=6 * GIB)
    queue = _queue(_share(9), _share(1))
    looks = [room.look for state in machine.states() for room in state.rooms]

    waits = queue_order.trial(machine, "n0", queue, _ticket(9, _share(2)))
    urgent = queue_order.trial(machine, "n0", queue, _ticket(9, _share(2), priority=1))

    assert isinstance(waits, queue_order.Waiting)
    assert (waits.place, waits.behind) == (2, "")  # t1 has passed, and 1 GiB is left
    assert isinstance(urgent, grants.Grant)
    assert [room.look for state in machine.states() for room in state.rooms] == looks
    assert set(machine.uids()) == {"holder-0", "holder-1"}


def test_a_queue_needs_its_machine() -> None:
    """A node that is not in the fleet is a mistake of the caller, and is named."""
    with pytest.raises(errors.LedgerError, match="elsewhere"):
        queue_order.settle(_machine(16), "elsewhere", [])
