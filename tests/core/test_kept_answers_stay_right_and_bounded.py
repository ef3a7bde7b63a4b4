"""Answers: kept per shape, right after any number of changes, and bounded whatever is asked."""

from __future__ import annotations

import msgspec

from partage.core import demands, rank_cache
from partage.core import fleet as fleets
from partage.core.policies import priced
from tests.core.small_fleets import fleet_of, grant, node, places, pod, share, whole


def _many(fleet: fleets.Fleet, name: str, times: int) -> None:
    for i in range(times):
        grant(fleet, f"{name}-{i % 2}", pod(share(1)), name)
        fleet.release(f"{name}-{i % 2}")


def test_an_answer_survives_more_changes_than_the_journal_remembers() -> None:
    """What is too old to be brought up to date is made anew."""
    fleet = fleet_of(node("n0", 10), node("n1", 10))
    demand = pod(share(6))
    assert fleet.best(demand, limit=0) == ["n0", "n1"]
    grant(fleet, "a", pod(share(5)), "n0")
    _many(fleet, "n1", 5000)

    assert fleet.best(demand, limit=0) == ["n1"]


def test_a_node_that_takes_the_place_of_another_is_not_mistaken_for_it() -> None:
    """Ordinals are used again; answers are not."""
    fleet = fleet_of(node("n0", 10), node("n1", 4))
    demand = pod(share(6))
    assert fleet.best(demand, limit=0) == ["n0"]
    fleet.remove_node("n0")
    fleet.set_node(node("n2", 4))
    assert fleet.best(demand, limit=0) == []
    fleet.remove_node("n2")
    fleet.set_node(node("n3", 10))

    assert fleet.best(demand, limit=0) == ["n3"]


def test_asking_about_ever_new_shapes_does_not_fill_the_memory() -> None:
    """Tenants write shapes; the least recently asked are forgotten, and asked again are right."""
    fleet = fleet_of(node("n0", 2000), node("n1", 900))
    for size in range(1, 1000):
        assert len(fleet.best(pod(share(size)), limit=0)) == (2 if size <= 900 else 1)

    kept = fleet._ranks
    assert len(kept._entries) == len(kept._planned) == rank_cache.MOST_SHAPES
    assert fleet.best(pod(share(950)), limit=0) == ["n0"]


def test_offers_that_several_shapes_share_stay_bounded() -> None:
    """Pods that differ in CPU share what nodes offer, as long as it is not too much."""
    fleet = fleet_of(*(node(f"n{i}", 100, 100) for i in range(3)), default="priced")
    shapes = [pod(share(5), cpu_milli=cpu) for cpu in (1000, 2000)]
    for i in range(60):
        grant(fleet, f"p{i}", pod(share(1 + i % 7)), f"n{i % 3}")
        for shape in shapes:
            fleet.best(shape, limit=0)
        if i % 3:
            fleet.release(f"p{i}")

    (offers,) = [o for o in fleet._ranks._planned.values() if o._shared]
    assert 0 < len(offers.by_look) <= 6


def test_a_pod_that_names_its_card_is_not_answered_by_looks() -> None:
    """Two nodes that look the same are not the same to a pod that wants one card of one of them."""
    fleet = fleet_of(node("n0", 10), node("n1", 10))
    for cpu in (0, 1, 2):
        demand = pod(share(1, uuids=("n1/0",)), nodes_by="priced", cpu_milli=cpu)
        assert fleet.best(demand, limit=0) == ["n1"]


def test_what_a_policy_remembers_of_a_node_is_its_own() -> None:
    """Two policies over the same nodes, and one that learned, do not read each other's notes."""
    cpu = msgspec.structs.replace
    fleet = fleet_of(
        cpu(node("n0", 100), free_cpu_milli=9000), cpu(node("n1", 100, 100), free_cpu_milli=9000)
    )
    first = [fleet.best(pod(share(5), nodes_by=name), limit=0) for name in ("priced", "binpack")]
    for _ in fleet.set_policy(priced.Priced(priced.Lesson({100: (0.0,) * 101}))):
        pass
    again = [fleet.best(pod(share(5), nodes_by=name), limit=0) for name in ("priced", "binpack")]

    assert first == [["n0", "n1"], ["n0", "n1"]]
    assert again == first


def test_ranks_are_made_anew_one_by_one_when_a_policy_learns() -> None:
    """A caller with no time to wait gets an answer from the new opinions all the same."""
    fleet = fleet_of(node("n0", 100), node("n1", 100, 100), default="priced")
    shapes = [pod(share(size)) for size in (5, 6, 7)]
    for shape in shapes:
        fleet.best(shape)

    steps = fleet.set_policy(priced.Priced())
    next(steps)
    next(steps)  # the first is made when the second is begun

    assert len(fleet._ranks._entries) == 1
    assert [fleet.best(shape) for shape in shapes] == [["n0"]] * 3
    for _ in steps:
        pass
    assert [fleet.best(shape) for shape in shapes] == [["n0"]] * 3


def test_a_rank_that_is_made_in_steps_knows_what_changed_between_them() -> None:
    """Nodes come, go and fill up meanwhile, and a new node takes the place of an old one."""
    many = [node(f"n{i}", 10) for i in range(300)]
    fleet = fleet_of(*many)
    demand = pod(share(6))
    steps = fleet.prepare(demand)
    assert steps is not None
    for i, _ in enumerate(steps):
        grant(fleet, f"a{i}", pod(share(5)), f"n{i}")  # long since rated
        grant(fleet, f"b{i}", pod(share(5)), f"n{299 - i}")  # not rated yet
        fleet.remove_node(f"n{100 + i}")
        fleet.set_node(node(f"new{i}", 10))
        fleet.set_node(node(f"late{i}", 10))

    fresh = fleet_of(*[state.node for state in fleet.states()])
    for granted in fleet.all_grants():
        fresh.admit(granted)
    assert fleet.prepare(demand) is None
    assert set(fleet.best(demand, limit=0)) == set(fresh.best(demand, limit=0))
    assert len(fleet.best(demand, limit=0)) == 300 - 2 * 5 + 5


def test_a_rank_that_was_begun_with_old_opinions_is_not_kept() -> None:
    """A policy may learn in the middle of it."""
    fleet = fleet_of(*[node(f"n{i}", 100) for i in range(200)], default="priced")
    demand = pod(share(6))
    steps = fleet.prepare(demand)
    assert steps is not None
    next(steps)
    for _ in fleet.set_policy(priced.Priced()):
        pass
    for _ in steps:
        pass
    assert fleet.prepare(demand) is not None
    assert len(fleet.best(demand, limit=0)) == 200


def test_pods_without_cards_are_ranked_by_the_cpu_of_today() -> None:
    """Nodes whose cards look the same may differ in CPU, and it changes."""
    replace = msgspec.structs.replace
    rich, poor = (
        replace(node("n0", 10), free_cpu_milli=9000),
        replace(node("n1", 10), free_cpu_milli=1000),
    )
    fleet = fleet_of(rich, poor)
    assert fleet.best(demands.PodDemand(), limit=0) == ["n1", "n0"]
    fleet.set_node(replace(rich, free_cpu_milli=500))

    assert fleet.best(demands.PodDemand(), limit=0) == ["n0", "n1"]


def test_a_pod_without_cards_is_not_put_on_a_node_that_is_taken_whole() -> None:
    """The node belongs to one pod."""
    everything = demands.Demand(cards=demands.ALL_CARDS, exclusive=demands.Exclusive.NODE)
    fleet = fleet_of(node("n0", 10))
    grant(fleet, "a", pod(everything))

    assert fleet.best(demands.PodDemand()) == []


def test_whole_cards_and_shares_of_equal_cards_take_the_first_of_a_kind() -> None:
    """Cards that look the same are told apart by their index only."""
    fleet = fleet_of(node("n0", 10, 10, 10, 10))
    grant(fleet, "a", pod(share(3, uuids=("n0/1",))))

    assert places(grant(fleet, "b", pod(whole()))) == [[0]]
    assert places(grant(fleet, "c", pod(share(8)))) == [[2]]
    assert places(grant(fleet, "d", pod(demands.Demand(memory_percent=50)))) == [[1]]
