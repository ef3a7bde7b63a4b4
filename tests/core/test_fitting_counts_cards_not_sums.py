"""Fitting: one card's room decides, never a node's sum."""

from __future__ import annotations

import msgspec
import pytest

from partage.core import cards, demands
from tests.core.small_fleets import GIB, fleet_of, grant, node, places, pod, share, whole


def test_a_nodes_sum_does_not_stand_for_one_cards_room() -> None:
    """gpushare's design example: 8138 fits where one card has it, not where two together do."""
    fleet = fleet_of(*(node(name, 16276, 16276) for name in ("N1", "N2", "N3")))
    for name, taken in (("N1", (16276, 12207)), ("N2", (12207, 12207)), ("N3", (8138, 16276))):
        for i, amount in enumerate(taken):
            grant(fleet, f"{name}-{i}", pod(share(amount, uuids=(f"{name}/{i}",))), name)

    assert fleet.best(pod(share(8138)), limit=0) == ["N3"]


def test_four_cards_with_three_gib_each() -> None:
    """One container gets the same share on several different cards."""
    fleet = fleet_of(node("n0", *[23 * GIB] * 8))

    granted = grant(fleet, "a", pod(share(3 * GIB, cards=4)))

    assert places(granted) == [[0, 1, 2, 3]]
    assert {s.memory_mib for s in granted.containers[0].shares} == {3 * GIB}


def test_percent_is_of_the_card_it_lands_on() -> None:
    """30 % of a 16384 MiB card are 4915 MiB, rounded down."""
    granted = grant(fleet_of(node("n0", 16384)), "a", pod(demands.Demand(memory_percent=30)))

    assert granted.containers[0].shares[0].memory_mib == 4915


def test_sixty_and_forty_percent_share_a_card_but_sixty_and_fifty_do_not() -> None:
    """Percentages add up to a card, not beyond."""
    fleet = fleet_of(node("n0", 24 * GIB))
    grant(fleet, "a", pod(demands.Demand(memory_percent=60)))

    assert fleet.best(pod(demands.Demand(memory_percent=50))) == []
    assert fleet.best(pod(demands.Demand(memory_percent=40))) == ["n0"]


@pytest.mark.parametrize("qos", [demands.Qos.NORMAL, demands.Qos.OFFLINE])
def test_a_full_card_is_not_for_who_asks_for_compute_alone(qos: demands.Qos) -> None:
    """Nothing runs on a card without any memory, be it granted or taken by foreign processes."""
    compute = pod(demands.Demand(compute_percent=30), qos=qos)
    empty, busy = node("n0", GIB, GIB).cards
    filled = msgspec.structs.replace(empty, foreign_memory_mib=GIB)
    fleet = fleet_of(cards.Node(name="n0", cards=(filled, busy)))

    assert places(grant(fleet, "a", compute)) == [[1]]
    grant(fleet, "b", pod(share(GIB)))
    assert fleet.best(compute) == []


def test_cards_of_different_size_are_each_taken_for_what_they_are() -> None:
    """A share that only the large card can hold goes there."""
    granted = grant(fleet_of(node("n0", 10 * GIB, 80 * GIB, 24 * GIB)), "a", pod(share(40 * GIB)))

    assert places(granted) == [[1]]


def test_a_whole_card_needs_a_card_with_nobody_on_it() -> None:
    """Exclusive means alone, and then nobody else comes."""
    fleet = fleet_of(node("n0", GIB, GIB))
    grant(fleet, "a", pod(demands.Demand(compute_percent=1)))

    assert places(grant(fleet, "b", pod(whole()))) == [[1]]
    assert fleet.best(pod(whole())) == []
    assert places(grant(fleet, "c", pod(share(10)))) == [[0]]
    assert fleet.best(pod(share(GIB))) == []


def test_a_whole_node_needs_an_empty_node_and_keeps_it() -> None:
    """Once given, not even a free corner of it is given again."""
    everything = demands.Demand(cards=demands.ALL_CARDS, exclusive=demands.Exclusive.NODE)
    fleet = fleet_of(node("n0", GIB, GIB), node("n1", GIB))
    grant(fleet, "a", pod(share(1)), "n1")

    assert fleet.best(pod(everything), limit=0) == ["n0"]
    assert places(grant(fleet, "b", pod(everything))) == [[0, 1]]
    assert fleet.best(pod(share(1)), limit=0) == ["n1"]


def test_all_cards_means_every_card_of_the_node() -> None:
    """One card that cannot take its part rules the node out."""
    fleet = fleet_of(node("n0", 4, 8))
    every = pod(share(4, cards=demands.ALL_CARDS))

    assert places(grant(fleet, "a", every)) == [[0, 1]]
    assert fleet.best(every) == []


def test_compute_is_set_aside_up_to_the_whole_card() -> None:
    """Shares of time add up to 100 percent."""
    fleet = fleet_of(node("n0", GIB))
    grant(fleet, "a", pod(share(1, compute_percent=70)))

    assert fleet.best(pod(share(1, compute_percent=31))) == []
    assert fleet.best(pod(share(1, compute_percent=30))) == ["n0"]


def test_who_asks_for_no_compute_is_not_kept_away_by_a_lack_of_it() -> None:
    """Best effort may stand beside tenants who have been promised more than there is."""
    fleet = fleet_of(node("n0", GIB, foreign_compute_percent=130))

    assert fleet.best(pod(share(1))) == ["n0"]
    assert fleet.best(pod(share(1, compute_percent=1))) == []


def test_offline_pods_divide_what_the_others_leave() -> None:
    """Their percentages add up among themselves, not with those who were promised time."""
    fleet = fleet_of(node("n0", GIB))
    grant(fleet, "a", pod(share(1, compute_percent=90)))
    offline = pod(share(1, compute_percent=60), qos=demands.Qos.OFFLINE)
    grant(fleet, "b", offline)

    assert fleet.best(offline) == []
    assert fleet.best(pod(share(1, compute_percent=10))) == ["n0"]


def test_tenants_are_limited_by_the_card_and_by_the_demand() -> None:
    """A 17th tenant is refused where sixteen are the limit, by whoever set it."""
    fleet = fleet_of(node("n0", GIB, max_tenants=3))
    modest = pod(share(1, max_tenants=2))
    grant(fleet, "a", modest)
    grant(fleet, "b", modest)

    assert fleet.best(modest) == []
    grant(fleet, "c", pod(share(1)))
    assert fleet.best(pod(share(1))) == []


def test_foreign_use_is_not_given_away() -> None:
    """What processes outside hold is neither free memory nor free time nor an empty card."""
    fleet = fleet_of(node("n0", 100, foreign_memory_mib=40, foreign_compute_percent=50))

    assert fleet.best(pod(share(61))) == []
    assert fleet.best(pod(share(1, compute_percent=51))) == []
    assert fleet.best(pod(whole())) == []
    assert fleet.best(pod(share(60, compute_percent=50))) == ["n0"]


def test_an_unhealthy_card_takes_nobody_and_keeps_whom_it_has() -> None:
    """Health decides about new pods only; the old ones still count when it recovers."""
    sound = node("n0", 10)
    fleet = fleet_of(sound)
    grant(fleet, "a", pod(share(6)))
    unhealthy = (msgspec.structs.replace(sound.cards[0], healthy=False),)
    fleet.set_node(msgspec.structs.replace(sound, cards=unhealthy))

    assert fleet.best(pod(share(1))) == []
    fleet.set_node(sound)
    assert fleet.best(pod(share(5))) == []
    assert fleet.best(pod(share(4))) == ["n0"]


def test_a_node_that_shrank_below_its_grants_takes_nobody() -> None:
    """Free room is negative then; it does not wrap around."""
    fleet = fleet_of(node("n0", 10))
    grant(fleet, "a", pod(share(8)))
    fleet.set_node(node("n0", 4))

    assert fleet.best(pod(share(1))) == []
    fleet.release("a")
    assert fleet.best(pod(share(4))) == ["n0"]


@pytest.mark.parametrize(
    ("restriction", "index"),
    [
        ({"models": ("a30",)}, 1),
        ({"models": ("*100*",)}, 2),
        ({"not_models": ("t4", "a30")}, 2),
        ({"uuids": ("n0/1", "n0/2")}, 1),
        ({"not_uuids": ("n0/0",)}, 1),
    ],
)
def test_restrictions_name_models_and_cards(restriction: dict[str, object], index: int) -> None:
    """Patterns ignore case; what is named is taken, what is excluded is not."""
    made = [
        cards.Card(uuid=f"n0/{i}", index=i, memory_mib=GIB, model=model)
        for i, model in enumerate(("T4", "A30", "NVIDIA A100-SXM4"))
    ]
    fleet = fleet_of(cards.Node(name="n0", cards=tuple(made)))

    assert places(grant(fleet, "a", pod(share(1, **restriction)))) == [[index]]


def test_node_modes_rule_nodes_out() -> None:
    """A node whose administrator gave it to others is not taken."""
    xgn = msgspec.structs.replace(node("n0", GIB), traits=frozenset({"t9k/xgn"}))
    fleet = fleet_of(xgn, node("n1", GIB))

    assert fleet.best(pod(share(1), refused_by=("t9k/xgn",)), limit=0) == ["n1"]


def test_pods_that_may_not_stand_beside_each_other_do_not() -> None:
    """Memory-only beside memory-and-core pods, on nodes whose mode forbids it."""
    mode = msgspec.structs.replace(node("n0", GIB), traits=frozenset({"core_mem"}))
    fleet = fleet_of(mode, node("n1", GIB))
    core = pod(share(1), tag="core")
    grant(fleet, "a", core, "n0")
    grant(fleet, "b", core, "n1")
    memory_only = pod(share(1), apart_from=(("core_mem", "core"),))

    assert fleet.best(memory_only, limit=0) == ["n1"]
    fleet.release("a")
    assert set(fleet.best(memory_only, limit=0)) == {"n0", "n1"}
