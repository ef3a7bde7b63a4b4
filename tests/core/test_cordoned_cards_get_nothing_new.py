"""Cordoned cards: nothing new lands there, what is there stays, and the reason is said."""

from __future__ import annotations

import msgspec
import pytest

from partage.core import cards, demands, refusals
from partage.core.refusals import Code
from tests.core.small_fleets import GIB, fleet_of, grant, node, places, pod, share, whole

EVERY_CARD = demands.Demand(cards=demands.ALL_CARDS, memory_mib=GIB)


def cordoned(facts: cards.Node, *indexes: int) -> cards.Node:
    """The node with these cards closed."""
    uuids = {facts.cards[index].uuid: "fan" for index in indexes}
    return msgspec.structs.replace(facts, cordons=uuids)


def test_others_are_chosen_and_who_is_there_stays() -> None:
    """The card keeps its tenant, counted as before, and the next pod goes beside it."""
    two = node("n0", 8 * GIB, 8 * GIB)
    fleet = fleet_of(two)
    first = grant(fleet, "a", pod(share(4 * GIB)))
    fleet.set_node(cordoned(two, 0))

    second = grant(fleet, "b", pod(share(4 * GIB)))

    assert (places(first), places(second)) == ([[0]], [[1]])
    state = fleet.state("n0")
    assert state is not None
    assert [room.free_mib for room in state.rooms] == [4 * GIB, 4 * GIB]


@pytest.mark.parametrize(
    "request_kind", [share(6 * GIB), share(memory_percent=10), share(compute_percent=1), whole()]
)
def test_the_refusal_says_that_it_is_a_cordon(request_kind: demands.Demand) -> None:
    """Whatever is asked for; it is not for ever, because cordons are lifted."""
    fleet = fleet_of(cordoned(node("n0", 8 * GIB), 0))

    why = refusals.furthest(fleet.refuse(pod(request_kind)))

    assert (why.code, why.never) == (Code.CARD_CORDONED, False)
    assert why.text == "container c0: card 0 is cordoned on node n0"
    assert list(fleet.reasons(pod(request_kind), ["n0"])) == [("n0", Code.CARD_CORDONED)]


def test_who_wants_all_cards_waits_for_the_cordon() -> None:
    """One closed card is enough to be in the way."""
    fleet = fleet_of(cordoned(node("n0", 8 * GIB, 8 * GIB), 1))

    why = refusals.furthest(fleet.refuse(pod(EVERY_CARD)))

    assert (why.code, why.never) == (Code.TOO_FEW_CARDS, False)
    assert [short.code for short in why.shortages] == [Code.CARD_CORDONED]


def test_an_unhealthy_card_is_told_as_that() -> None:
    """A cordon beside it changes nothing, and nodes that differ in it have their own reasons."""
    unhealthy = node("n0", 8 * GIB, healthy=False)
    other = msgspec.structs.replace(cordoned(node("n1", 8 * GIB), 0), name="n1")
    fleet = fleet_of(cordoned(unhealthy, 0), other)

    reasons = dict(fleet.reasons(pod(share(1)), ["n0", "n1"]))

    assert reasons == {"n0": Code.CARD_UNHEALTHY, "n1": Code.CARD_CORDONED}


def test_an_opened_card_is_used_again() -> None:
    """At once, by the ranks that are kept, too."""
    one = node("n0", 8 * GIB)
    fleet = fleet_of(cordoned(one, 0))
    assert fleet.best(pod(share(1))) == []
    fleet.set_node(one)
    assert fleet.best(pod(share(1))) == ["n0"]
    fleet.set_node(cordoned(one, 0))
    assert fleet.best(pod(share(1))) == []
