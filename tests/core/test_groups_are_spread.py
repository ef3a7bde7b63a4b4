"""Pods of one spread group are on different cards, whatever comes and goes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partage.core import cards, demands, grants, refusals
from partage.core.placement import fitting, plans
from partage.core.placement.rooms import NodeState
from partage.core.policies import binpack
from tests import strategies
from tests.core.small_fleets import GIB, fleet_of, grant, node, places, pod, share, whole

GROUP = "lab/owner/u"
MATE = pod(share(GIB), spread_group=GROUP)


def test_two_have_a_card_each_and_the_third_waits() -> None:
    """It says why, that waiting can help, and for which card; then it gets that card."""
    fleet = fleet_of(node("n0", 16 * GIB, 16 * GIB))
    placed = [places(grant(fleet, uid, MATE)) for uid in "ab"]

    assert sorted(placed) == [[[0]], [[1]]]
    assert fleet.best(MATE) == []
    why = refusals.furthest(fleet.refuse(MATE))
    assert (why.code, why.never) == (refusals.Code.SAME_GROUP, False)
    assert why.text == "container c0: card 0 has another pod of its spread group on node n0"
    assert [(s.index, s.code) for s in why.shortages] == [
        (0, refusals.Code.SAME_GROUP),
        (1, refusals.Code.SAME_GROUP),
    ]
    fleet.release("b")
    assert places(grant(fleet, "c", MATE)) == [[1]]


@pytest.mark.parametrize(
    "other",
    [
        pod(share(GIB)),
        pod(share(GIB), spread_group="lab/owner/v"),
        pod(share(GIB), spread_group="club/owner/u"),
    ],
    ids=["without a group", "of another owner", "of another namespace"],
)
def test_others_share_cards_with_it(other: demands.PodDemand) -> None:
    """The rule is about pods of the group, and about nobody else."""
    fleet = fleet_of(node("n0", 16 * GIB))
    grant(fleet, "a", MATE)
    grant(fleet, "b", other)

    assert fleet.best(MATE) == []
    fleet.release("a")
    assert places(grant(fleet, "c", MATE)) == [[0]]


def test_containers_of_one_pod_may_share_a_card() -> None:
    """They are one pod of the group."""
    fleet = fleet_of(node("n0", 4 * GIB))

    assert places(grant(fleet, "a", pod(share(1), share(2), spread_group=GROUP))) == [[0], [0]]


def test_a_hold_of_its_own_does_not_stand_in_its_way() -> None:
    """A pod that is decided about again may keep its card."""
    fleet = fleet_of(node("n0", 16 * GIB))
    for _ in range(2):
        held = fleet.hold(grants.Pod("a"), MATE, "n0", expires_at=1)
        assert not isinstance(held, refusals.Refusal)


def test_whole_cards_of_a_group_are_the_linked_ones() -> None:
    """What is near is chosen among what the group leaves."""
    near = {0: 1, 1: 0, 2: 3, 3: 2}
    made = tuple(
        cards.Card(uuid=f"n0/{i}", index=i, memory_mib=GIB, links=((f"n0/{near[i]}", 9),))
        for i in range(4)
    )
    fleet = fleet_of(cards.Node(name="n0", cards=made))
    pair = pod(whole(2), spread_group=GROUP)

    assert sorted(places(grant(fleet, uid, pair)) for uid in "ab") == [[[0, 1]], [[2, 3]]]


def test_on_an_empty_node_it_fits() -> None:
    """More than a card has is never; a card with a pod of the group is not."""
    fleet = fleet_of(node("n0", GIB))
    grant(fleet, "a", MATE)
    large = msgspec.structs.replace(MATE, containers=pod(share(2 * GIB)).containers)

    assert refusals.furthest(fleet.refuse(large)).never
    assert not refusals.furthest(fleet.refuse(MATE)).never


def test_kept_answers_are_of_one_group() -> None:
    """Pods that differ in their group only are asked about one after the other."""
    fleet = fleet_of(node("n0", 16 * GIB), node("n1", 16 * GIB))
    other = msgspec.structs.replace(MATE, spread_group="lab/owner/v")
    for demand in (MATE, other):
        assert len(fleet.best(demand, limit=0)) == 2
    grant(fleet, "a", MATE, "n0")

    assert fleet.best(MATE, limit=0) == ["n1"]
    assert sorted(fleet.best(other, limit=0)) == ["n0", "n1"]
    assert dict(fleet.reasons(MATE, ["n0", "n1"])) == {"n0": refusals.Code.SAME_GROUP}


def test_nodes_that_differ_in_their_groups_look_different() -> None:
    """Answers are kept by look: as much is free on both nodes, but one has the group."""
    fleet = fleet_of(node("n0", 16 * GIB), node("n1", 16 * GIB))
    grant(fleet, "a", MATE, "n0")
    grant(fleet, "b", pod(share(GIB)), "n1")

    assert fleet.best(MATE, limit=0) == ["n1"]
    assert dict(fleet.reasons(MATE, ["n0", "n1"])) == {"n0": refusals.Code.SAME_GROUP}


@settings(max_examples=300, deadline=None)
@given(strategies.nodes(fewest_cards=1), strategies.pods(), st.sets(st.integers(0, 3)))
def test_a_card_with_the_group_is_as_good_as_a_closed_one(
    where: cards.Node, demand: demands.PodDemand, taken: set[int]
) -> None:
    """Where a pod fits beside its group, it fits on the same node with those cards cordoned."""
    member = msgspec.structs.replace(demand, spread_group=GROUP, tag="", apart_from=())
    beside, closed = NodeState(where), [card for card in where.cards if card.index in taken]
    for card in closed:
        beside.add(_mate(where, card))
    cordons = {**where.cordons, **{card.uuid: "" for card in closed}}
    alone = NodeState(msgspec.structs.replace(where, cordons=cordons))
    plan, policy = plans.Plan(member), binpack.Binpack()

    assert fitting.place(beside, plan, policy) == fitting.place(alone, plan, policy)


def _mate(where: cards.Node, card: cards.Card) -> grants.Grant:
    part = grants.Share(uuid=card.uuid, index=card.index, memory_mib=0)
    container = grants.ContainerGrant(name="c0", shares=(part,))
    return grants.Grant(
        pod=grants.Pod(card.uuid), node=where.name, containers=(container,), spread_group=GROUP
    )
