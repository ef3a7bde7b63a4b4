"""Cards of which nobody knows the memory: whole or not at all, and in every policy."""

from __future__ import annotations

import msgspec
import pytest

from partage.core import cards, demand_mix, demands, refusals
from partage.core.placement.rooms import NodeState
from partage.core.policies import priced
from partage.core.refusals import Code
from tests.core.small_fleets import GIB, fleet_of, grant, node, places, pod, share, whole


def unknown(name: str, count: int) -> cards.Node:
    """A node that says how many cards it has, and no more."""
    made = (
        cards.Card(uuid=f"{name}/{i}", index=i, memory_mib=0, whole_only=True) for i in range(count)
    )
    return cards.Node(name=name, cards=tuple(made))


@pytest.mark.parametrize(
    "facts", [{"memory_mib": 0}, {"memory_mib": 1, "whole_only": True}, {"memory_mib": -1}]
)
def test_a_contradiction_cannot_be_written_down(facts: dict[str, int]) -> None:
    """No memory without saying so, memory that is said to be unknown, less than none."""
    with pytest.raises(ValueError, match="memory"):
        cards.Card(uuid="x", index=0, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["binpack", "spread", "priced"])
def test_whole_cards_are_granted_once_each(policy: str) -> None:
    """Two, and not a third; in every policy."""
    fleet = fleet_of(unknown("n0", 2), default=policy)
    first, second = (grant(fleet, uid, pod(whole())) for uid in ("a", "b"))
    assert sorted(places(first) + places(second)) == [[0], [1]]
    assert all(s.exclusive and not s.memory_mib for s in first.containers[0].shares)
    assert fleet.best(pod(whole())) == []
    fleet.release("a")
    assert fleet.best(pod(whole())) == ["n0"]


@pytest.mark.parametrize(
    "request_kind",
    [share(1), share(memory_percent=1), share(compute_percent=1), share(GIB, cards=2)],
)
def test_shares_are_refused_and_it_is_said_why(request_kind: demands.Demand) -> None:
    """Whatever kind of share, and for ever, as far as anybody knows."""
    fleet = fleet_of(unknown("n0", 2))
    why = refusals.furthest(fleet.refuse(pod(request_kind)))
    assert (why.code, why.never) == (Code.MEMORY_UNKNOWN, True)
    assert why.text == (
        "container c0 asks for a share of a card; how much memory the cards of node n0 have is "
        "not known, so they are given whole or not at all"
    )


def test_too_many_of_them_are_told_as_that() -> None:
    """Their memory is not what is in the way."""
    why = refusals.furthest(fleet_of(unknown("n0", 2)).refuse(pod(whole(3))))
    assert why.code is Code.TOO_MANY_CARDS


def test_cards_that_others_can_share_are_spared() -> None:
    """Who wants a whole card gets one that is good for nothing else."""
    fleet = fleet_of(node("n0", 8 * GIB), unknown("n1", 1), default="priced")
    assert fleet.best(pod(whole()), limit=0) == ["n1", "n0"]


def test_prices_are_learned_beside_them() -> None:
    """A card without a size has no price of its own."""
    mix = demand_mix.Mix()
    mix.add(pod(whole()))
    mix.add(pod(share(GIB)))
    states = [NodeState(unknown("n1", 2)), NodeState(node("n0", 8 * GIB))]
    assert set(priced.learn(mix, states).values) == {8 * GIB}
    assert priced.learn(mix, states[:1]).values == {}


def test_a_memory_that_becomes_known_changes_nothing_for_its_tenant() -> None:
    """The card stays taken; free, it can be shared."""
    fleet = fleet_of(unknown("n0", 2))
    grant(fleet, "a", pod(whole()))
    fleet.set_node(msgspec.structs.replace(node("n0", 8 * GIB, 8 * GIB)))
    assert places(grant(fleet, "b", pod(share(GIB)))) == [[1]]
    assert fleet.best(pod(whole())) == []
