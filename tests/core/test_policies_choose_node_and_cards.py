"""Policies: which node and which cards, among what fits."""

from __future__ import annotations

import itertools

import msgspec

from partage.core import cards, demands
from partage.core import fleet as fleets
from partage.core.cards import Link
from tests.core.small_fleets import GIB, fleet_of, grant, node, places, pod, share, whole


def _fill(fleet: fleets.Fleet, name: str, *taken: int) -> None:
    for i, amount in enumerate(taken):
        if amount:
            demand = pod(share(amount, uuids=(f"{name}/{i}",)))
            grant(fleet, f"fill-{name}-{i}", demand, name)


def test_binpack_takes_the_least_free_card_that_fits() -> None:
    """gpushare's design example: free 12207, 8138, 4069, 16276; 8138 goes to GPU1."""
    fleet = fleet_of(node("n0", *[16276] * 4))
    _fill(fleet, "n0", 4069, 8138, 12207)

    assert places(grant(fleet, "a", pod(share(8138)))) == [[1]]


def test_binpack_breaks_ties_by_the_lowest_index() -> None:
    """Equal cards are taken in order."""
    fleet = fleet_of(node("n0", 10, 10, 10))
    _fill(fleet, "n0", 0, 4, 4)

    assert places(grant(fleet, "a", pod(share(6)))) == [[1]]


def test_binpack_chooses_the_node_with_the_tightest_card() -> None:
    """The same rule decides between nodes."""
    fleet = fleet_of(node("n0", 10), node("n1", 10), node("n2", 10))
    _fill(fleet, "n1", 6)
    _fill(fleet, "n2", 3)

    assert fleet.best(pod(share(4)), limit=0) == ["n1", "n2", "n0"]


def test_spread_takes_the_freest_card_on_the_freest_node() -> None:
    """The opposite of binpack, node and card."""
    fleet = fleet_of(node("n0", 10, 10), node("n1", 12, 12), default="spread")
    _fill(fleet, "n1", 1)

    assert fleet.best(pod(share(4)), limit=0) == ["n1", "n0"]
    assert places(grant(fleet, "a", pod(share(4)), "n1")) == [[1]]


def test_a_pod_may_name_its_policies_for_node_and_card() -> None:
    """The two tiers are independent."""
    fleet = fleet_of(node("n0", 10, 10), node("n1", 10, 10))
    _fill(fleet, "n1", 2)
    demand = pod(share(4), nodes_by="binpack", cards_by="spread")

    assert fleet.best(demand) == ["n1"]
    assert places(grant(fleet, "a", demand, "n1")) == [[1]]


def test_a_node_may_have_its_own_policy_for_cards() -> None:
    """As a node's placement label says, unless the pod says otherwise."""
    fleet = fleet_of(msgspec.structs.replace(node("n0", 10, 10), cards_by="spread"))
    _fill(fleet, "n0", 2)

    assert places(grant(fleet, "a", pod(share(4)))) == [[1]]
    assert places(grant(fleet, "b", pod(share(4), cards_by="binpack"))) == [[1]]


def test_priced_takes_the_tightest_card_when_it_knows_nothing() -> None:
    """Without a lesson every piece of a card is worth its size, and ties are packed."""
    fleet = fleet_of(node("n0", 10, 10), node("n1", 10, 10), default="priced")
    _fill(fleet, "n1", 0, 3)

    assert fleet.best(pod(share(4))) == ["n1"]
    assert places(grant(fleet, "a", pod(share(4)), "n1")) == [[1]]


def _linked(name: str, count: int, links: dict[frozenset[int], int]) -> cards.Node:
    made = []
    for i in range(count):
        near = tuple((f"{name}/{j}", links[frozenset((i, j))]) for j in range(count) if j != i)
        made.append(cards.Card(uuid=f"{name}/{i}", index=i, memory_mib=GIB, links=near))
    return cards.Node(name=name, cards=tuple(made))


def _pairs_of_six() -> cards.Node:
    """GaiaGPU's test fixture: PIX pairs {0,1}{2,3}{4,5}, PHB {0-3}, and the rest across sockets."""
    links = {}
    for i, j in itertools.combinations(range(6), 2):
        near = Link.PIX if i // 2 == j // 2 else Link.PHB if j < 4 else Link.NODE
        links[frozenset((i, j))] = int(near)
    return _linked("n0", 6, links)


def test_several_cards_are_the_best_connected_ones() -> None:
    """GaiaGPU's vectors: three cards are 0, 1, 2; with card 2 in use, two are 0, 1."""
    assert places(grant(fleet_of(_pairs_of_six()), "a", pod(whole(3)))) == [[0, 1, 2]]

    fleet = fleet_of(_pairs_of_six())
    grant(fleet, "b", pod(share(1, uuids=("n0/2",))))
    assert places(grant(fleet, "c", pod(whole(2)))) == [[0, 1]]


def test_several_shares_are_on_the_best_connected_cards_too() -> None:
    """Links matter for slices as for whole cards."""
    fleet = fleet_of(_pairs_of_six())
    grant(fleet, "a", pod(whole(1, uuids=("n0/0",))))

    assert places(grant(fleet, "b", pod(share(1, cards=2)))) == [[2, 3]]


def test_one_whole_card_is_the_one_the_others_miss_least() -> None:
    """Large well-connected groups stay whole: the pair across the socket is broken first."""
    fleet = fleet_of(_pairs_of_six())

    assert places(grant(fleet, "a", pod(whole()))) == [[4]]


def test_containers_apart_still_get_their_own_cards_near_each_other() -> None:
    """Each container's cards are near each other, where it has a choice."""
    demand = pod(whole(2), whole(2))

    granted = places(grant(fleet_of(_pairs_of_six()), "a", demand))

    assert sorted(granted) in ([[0, 1], [2, 3]], [[0, 1], [4, 5]], [[2, 3], [4, 5]])


def test_many_cards_are_connected_greedily() -> None:
    """With sixteen cards not all sets can be compared; the NVLink half is still found."""
    links = {
        frozenset((i, j)): int(Link.NVLINK if i % 2 == j % 2 == 1 else Link.SYS)
        for i, j in itertools.combinations(range(16), 2)
    }

    granted = grant(fleet_of(_linked("n0", 16, links)), "a", pod(whole(8)))

    assert places(granted) == [[1, 3, 5, 7, 9, 11, 13, 15]]


def test_qualities_of_service_are_kept_apart_while_possible() -> None:
    """Online goes where no offline is, even if that card is freer; node and card alike."""
    fleet = fleet_of(node("n0", 10, 10), node("n1", 10))
    offline = pod(share(2), qos=demands.Qos.OFFLINE)
    online = pod(share(2), qos=demands.Qos.ONLINE)
    grant(fleet, "a", offline)
    grant(fleet, "b", offline, "n1")

    assert fleet.best(online, limit=0) == ["n0", "n1"]
    assert places(grant(fleet, "c", online)) == [[1]]
    assert places(grant(fleet, "d", pod(share(2)), "n0")) == [[0]]


def test_qualities_of_service_share_a_card_when_they_must() -> None:
    """Keeping apart is a wish, not a reason to refuse."""
    fleet = fleet_of(node("n0", 10))
    grant(fleet, "a", pod(share(2), qos=demands.Qos.OFFLINE))

    assert fleet.best(pod(share(2), qos=demands.Qos.ONLINE)) == ["n0"]


def test_best_answers_only_about_the_names_asked() -> None:
    """And stops at the limit."""
    fleet = fleet_of(*(node(f"n{i}", 10) for i in range(5)))

    assert fleet.best(pod(share(1)), limit=2, among={"n4", "n1", "n3"}) == ["n1", "n3"]
    assert fleet.best(pod(share(1)), limit=0, among={"n9"}) == []
