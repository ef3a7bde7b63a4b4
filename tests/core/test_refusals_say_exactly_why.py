"""Refusals: never or not now, on which card, short by how much."""

from __future__ import annotations

import msgspec
import pytest

from partage.core import cards, demands, grants, refusals
from partage.core import fleet as fleets
from partage.core.refusals import Code
from tests.core.small_fleets import GIB, fleet_of, grant, node, pod, share, whole

EVERYTHING = demands.Demand(cards=demands.ALL_CARDS, exclusive=demands.Exclusive.NODE)


def _why(fleet: fleets.Fleet, demand: demands.PodDemand) -> refusals.Refusal:
    assert fleet.best(demand) == []
    return refusals.furthest(fleet.refuse(demand))


def test_larger_than_any_card_is_never() -> None:
    """The node with the largest card is the one that is named."""
    fleet = fleet_of(node("n0", 16 * GIB), node("n1", 24 * GIB, 10 * GIB))

    why = _why(fleet, pod(share(30 * GIB)))

    assert (why.code, why.never, why.node) == (Code.CARD_TOO_SMALL, True, "n1")
    assert why.shortages[0].short == 6 * GIB
    assert why.text == (
        "container c0 asks for 30720 MiB on one card; the largest card of node n1 has 24576 MiB"
    )


def test_larger_than_the_cards_of_the_accepted_model_is_never() -> None:
    """A large card of another model is no hope."""
    fleet = fleet_of(node("n0", 24 * GIB, model="A30"), node("n1", 80 * GIB, model="A100"))

    why = _why(fleet, pod(share(30 * GIB, models=("a30",))))

    assert (why.code, why.never, why.node) == (Code.CARD_TOO_SMALL, True, "n0")


def test_a_larger_card_that_does_not_qualify_is_not_forgotten() -> None:
    """The largest card is told as that of those which may be had."""
    why = _why(fleet_of(node("n0", 16 * GIB, 24 * GIB)), pod(share(20 * GIB, uuids=("n0/0",))))

    assert why.text == (
        "container c0 asks for 20480 MiB on one card; "
        "the largest card of node n0 that qualifies has 16384 MiB"
    )


@pytest.mark.parametrize(
    ("pattern", "says"),
    [("*a100*", "a100"), ("a100*", "a100*"), ("*a?00*", "*a?00*")],
)
def test_a_part_of_a_models_name_is_told_without_its_stars(pattern: str, says: str) -> None:
    """Nobody wrote them; patterns that somebody wrote are told as they are."""
    why = _why(fleet_of(node("n0", GIB, model="T4")), pod(share(1, models=(pattern,))))

    assert why.text == f"container c0 asks for model {says}; node n0 has T4"


def test_no_memory_for_who_asks_for_none_is_told_as_that() -> None:
    """The tenant did not ask for one MiB, and may come when there is some."""
    fleet = fleet_of(node("n0", GIB))
    grant(fleet, "a", pod(share(GIB)))

    why = _why(fleet, pod(demands.Demand(compute_percent=30)))

    assert (why.code, why.never) == (Code.MEMORY, False)
    assert why.text == "container c0: card 0 has no memory free on node n0"


def test_no_such_model_is_never() -> None:
    """What is wanted and what is there are both said."""
    why = _why(fleet_of(node("n0", GIB, model="T4")), pod(share(1, models=("a30", "a100"))))

    assert (why.code, why.never) == (Code.NO_SUCH_MODEL, True)
    assert why.text == "container c0 asks for model a30 or a100; node n0 has T4"


def test_no_such_card_is_never() -> None:
    """A uuid that no node has."""
    why = _why(fleet_of(node("n0", GIB)), pod(share(1, uuids=("GPU-x",))))

    assert (why.code, why.never) == (Code.NO_SUCH_CARD, True)


def test_more_cards_than_any_node_has_is_never() -> None:
    """The sum over nodes does not help."""
    why = _why(fleet_of(node("n0", GIB), node("n1", GIB, GIB)), pod(share(1, cards=3)))

    assert (why.code, why.never) == (Code.TOO_MANY_CARDS, True)


def test_containers_that_are_too_much_together_are_never() -> None:
    """Each fits by itself, the pod does not, even on an empty node."""
    why = _why(fleet_of(node("n0", 10)), pod(share(6), share(6)))

    assert (why.code, why.never) == (Code.TOO_MUCH_TOGETHER, True)


def test_a_pod_on_one_card_is_as_large_as_its_sum() -> None:
    """For gpushare the sum of the containers has to fit on one card."""
    why = _why(fleet_of(node("n0", 10, 10)), pod(share(6), share(6), together=True))

    assert (why.code, why.never) == (Code.CARD_TOO_SMALL, True)
    assert why.shortages[0].short == 2


def test_a_node_mode_is_never_there() -> None:
    """The mode is named."""
    mode = msgspec.structs.replace(node("n0", GIB), traits=frozenset({"t9k/xgn"}))

    why = _why(fleet_of(mode), pod(share(1), refused_by=("t9k/xgn",)))

    assert (why.code, why.never) == (Code.NODE_MODE, True)
    assert "t9k/xgn" in why.text


@pytest.mark.parametrize(
    ("fleet", "code"),
    [(fleet_of(), Code.NO_NODES), (fleet_of(cards.Node(name="bare")), Code.NO_CARDS)],
    ids=["no node", "no card"],
)
def test_where_nothing_is_nothing_fits(fleet: fleets.Fleet, code: Code) -> None:
    """An empty fleet and a node without cards are told apart."""
    why = _why(fleet, pod(share(1)))

    assert (why.code, why.never) == (code, True)


def test_memory_that_is_short_is_counted_per_card() -> None:
    """Every card that cannot take the pod says by how much, the nearest one is in the text."""
    fleet = fleet_of(node("n0", 10, 10))
    grant(fleet, "a", pod(share(8, uuids=("n0/0",))))
    grant(fleet, "b", pod(share(5, uuids=("n0/1",))))

    why = _why(fleet, pod(share(7)))

    assert (why.code, why.never) == (Code.MEMORY, False)
    assert [(s.index, s.asked, s.free, s.short) for s in why.shortages] == [
        (0, 7, 2, 5),
        (1, 7, 5, 2),
    ]
    assert why.text == "container c0: asks for 7 MiB; card 1 has 5 MiB, 2 short, on node n0"


@pytest.mark.parametrize(
    ("demand", "text"),
    [
        (share(7), "it asks for 7 MiB; card 0 has 5 MiB, 2 short, on node n0"),
        (whole(), "it asks for a card of its own; card 0 is in use on node n0"),
        (share(1, max_tenants=1), "card 0 takes no more tenants on node n0"),
    ],
    ids=["memory", "whole card", "tenants"],
)
def test_what_has_no_name_is_told_in_a_sentence(demand: demands.Demand, text: str) -> None:
    """As a claim, whose name stands where the sentence is shown."""
    fleet = fleet_of(node("n0", 10))
    grant(fleet, "a", pod(share(5)))
    claim = demands.PodDemand(containers=(demands.ContainerDemand("", demand),))
    assert _why(fleet, claim).text == text


def test_compute_that_is_short_is_counted() -> None:
    """The card has the memory, but not the time."""
    fleet = fleet_of(node("n0", 10))
    grant(fleet, "a", pod(share(1, compute_percent=80)))

    why = _why(fleet, pod(share(1, compute_percent=30)))

    assert (why.code, why.never, why.shortages[0].short) == (Code.COMPUTE, False, 10)


@pytest.mark.parametrize(
    ("demand", "code"),
    [
        (pod(whole()), Code.CARD_NOT_EMPTY),
        (pod(share(1, max_tenants=1)), Code.TENANTS),
        (pod(EVERYTHING), Code.NODE_NOT_EMPTY),
    ],
    ids=["whole card", "tenants", "whole node"],
)
def test_a_neighbour_in_the_way_is_not_now(demand: demands.PodDemand, code: Code) -> None:
    """It may leave."""
    fleet = fleet_of(node("n0", 10))
    grant(fleet, "a", pod(share(1)))

    why = _why(fleet, demand)

    assert (why.code, why.never) == (code, False)


@pytest.mark.parametrize(
    ("first", "code"), [(whole(), Code.CARD_TAKEN), (EVERYTHING, Code.NODE_TAKEN)]
)
def test_a_whole_card_of_another_pod_is_not_now(first: demands.Demand, code: Code) -> None:
    """A card or a node that is taken whole."""
    fleet = fleet_of(node("n0", 10))
    grant(fleet, "a", pod(first))

    why = _why(fleet, pod(share(1)))

    assert (why.code, why.never) == (code, False)


def test_an_unhealthy_card_is_not_now() -> None:
    """It may recover."""
    why = _why(fleet_of(node("n0", 10, healthy=False)), pod(share(1)))

    assert (why.code, why.never) == (Code.CARD_UNHEALTHY, False)
    assert why.text == "container c0: card 0 is not healthy on node n0"


def test_foreign_memory_is_not_now() -> None:
    """Whoever holds it may go."""
    why = _why(fleet_of(node("n0", 10, foreign_memory_mib=8)), pod(share(5)))

    assert (why.code, why.never, why.shortages[0].short) == (Code.MEMORY, False, 3)
    assert why.text == (
        "container c0: asks for 5 MiB; card 0 has 2 MiB, 3 short, on node n0; "
        "processes outside Partage use 8 MiB of it"
    )


def test_a_stranger_on_a_card_keeps_it_from_whoever_wants_it_whole() -> None:
    """The same as a tenant; and it is said who is there."""
    why = _why(fleet_of(node("n0", 10, foreign_memory_mib=1)), pod(whole()))

    assert (why.code, why.never) == (Code.CARD_NOT_EMPTY, False)
    assert why.text.endswith(
        "card 0 is in use on node n0; processes outside Partage use 1 MiB of it"
    )


def test_cards_that_strangers_use_are_counted_among_those_that_are_missing() -> None:
    """Of several cards only some would do."""
    free, used = node("n0", 10, 10).cards, node("n0", 10, 10, 10, foreign_memory_mib=3).cards[2:]
    why = _why(fleet_of(cards.Node(name="n0", cards=(*free, *used))), pod(whole(3)))

    assert why.code is Code.TOO_FEW_CARDS
    assert why.text == (
        "container c0 asks for 3 cards; 2 of node n0 have room; "
        "processes outside Partage use 1 of the others"
    )


def test_too_few_free_cards_is_not_now() -> None:
    """Some cards would do, but not as many as are asked for."""
    fleet = fleet_of(node("n0", 10, 10, 10))
    grant(fleet, "a", pod(share(8)))

    why = _why(fleet, pod(share(5, cards=3)))

    assert (why.code, why.never) == (Code.TOO_FEW_CARDS, False)
    assert why.text == "container c0 asks for 3 cards; 2 of node n0 have room"


def test_containers_that_do_not_fit_at_the_same_time_are_not_now() -> None:
    """Each would fit alone on what is left."""
    fleet = fleet_of(node("n0", 10, 10))
    grant(fleet, "a", pod(share(8)))

    why = _why(fleet, pod(share(6), share(6)))

    assert (why.code, why.never) == (Code.ARRANGEMENT, False)


@pytest.mark.parametrize(
    ("demand", "code", "never"),
    [
        (pod(share(6), share(5, cards=7)), Code.TOO_MANY_CARDS, True),
        (pod(share(6), share(5, models=("H100",))), Code.NO_SUCH_MODEL, True),
        (pod(share(6), share(5), share(5), share(1, compute_percent=95)), Code.COMPUTE, False),
        (pod(share(14, cards=demands.ALL_CARDS)), Code.CARD_TOO_SMALL, True),
    ],
    ids=["cards", "model", "compute", "all cards"],
)
def test_one_containers_plain_reason_comes_first(
    demand: demands.PodDemand, code: Code, never: bool
) -> None:
    """Whatever else may be wrong with the arrangement of the others."""
    sizes = (10, 11, 12, 13, 14, 15)
    made = tuple(
        cards.Card(uuid=f"g{i}", index=i, memory_mib=size, foreign_compute_percent=10)
        for i, size in enumerate(sizes)
    )

    why = _why(fleet_of(cards.Node(name="n0", cards=made)), demand)

    assert (why.code, why.never) == (code, never)


def test_a_search_that_was_given_up_does_not_say_never() -> None:
    """Nobody knows whether an arrangement exists; the text says so."""
    demand = pod(*(share(50 + i) for i in range(24)))

    why = _why(fleet_of(node("n0", *[185] * 8)), demand)

    assert (why.code, why.never) == (Code.NOT_FOUND, False)


def test_a_neighbour_of_the_wrong_kind_is_not_now() -> None:
    """Its tag is named."""
    mode = msgspec.structs.replace(node("n0", GIB), traits=frozenset({"m"}))
    fleet = fleet_of(mode)
    grant(fleet, "a", pod(share(1), tag="core"))

    why = _why(fleet, pod(share(1), apart_from=(("m", "core"),)))

    assert (why.code, why.never) == (Code.NEIGHBOUR, False)


def test_the_node_where_the_pod_came_furthest_speaks_for_the_fleet() -> None:
    """Not now on one node outweighs never on all others, and the smaller lack is nearer."""
    fleet = fleet_of(node("n0", 4), node("n1", 10), node("n2", 10))
    grant(fleet, "a", pod(share(8)), "n1")
    grant(fleet, "b", pod(share(6)), "n2")

    why = _why(fleet, pod(share(7)))

    assert (why.node, why.shortages[0].short) == ("n2", 3)


def test_a_refused_hold_says_the_same() -> None:
    """Holding on a node that cannot take the pod answers with the refusal of that node."""
    fleet = fleet_of(node("n0", 4))

    answer = fleet.hold(grants.Pod("a"), pod(share(5)), "n0", expires_at=1)

    assert answer == fleet.refuse(pod(share(5)))[0]
