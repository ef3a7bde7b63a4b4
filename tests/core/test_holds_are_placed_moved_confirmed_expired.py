"""Holds: a reservation has one place and one end."""

from __future__ import annotations

import pytest

from partage.core import errors, fleet, grants, refusals
from partage.core.policies import binpack
from tests.core.making import fleet_of, node, pod, share

ME = grants.Pod("me", "lab", "train")
HALF = pod(share(5))


def _world() -> fleet.Fleet:
    return fleet_of(node("n0", 5), node("n1", 5))


def test_what_is_held_is_not_given_to_others() -> None:
    """A hold counts like a grant."""
    world = _world()
    world.hold(ME, HALF, "n0", expires_at=10)

    assert world.best(HALF, limit=0) == ["n1"]


def test_a_moved_hold_frees_its_old_place() -> None:
    """The same pod holds at one place only."""
    world = _world()
    world.hold(ME, HALF, "n0", expires_at=10)
    world.hold(ME, HALF, "n1", expires_at=20)

    assert world.best(HALF, limit=0) == ["n0"]
    assert world.hold_of("me") is not None
    assert world.expire(10) == []


def test_a_move_that_fails_leaves_the_hold_where_it_was() -> None:
    """Being refused elsewhere loses nothing."""
    world = _world()
    world.hold(grants.Pod("other"), HALF, "n1", expires_at=99)
    before = world.hold(ME, HALF, "n0", expires_at=10)

    assert isinstance(world.hold(ME, HALF, "n1", expires_at=20), refusals.Refusal)
    assert world.hold_of("me") == before


def test_a_hold_expires_when_its_time_has_come_and_not_before() -> None:
    """Time is the caller's."""
    world = _world()
    world.hold(ME, HALF, "n0", expires_at=10)

    assert world.expire(9.9) == []
    assert [grant.pod for grant in world.expire(10)] == [ME]
    assert set(world.best(HALF, limit=0)) == {"n0", "n1"}


def test_a_confirmed_hold_does_not_expire() -> None:
    """Confirming twice is the same as once."""
    world = _world()
    world.hold(ME, HALF, "n0", expires_at=10)

    assert world.confirm("me") == world.confirm("me")
    assert world.expire(1000) == []
    assert world.grant_of("me") is not None
    assert world.hold_of("me") is None


def test_confirming_an_expired_hold_is_an_error() -> None:
    """Its place may belong to somebody else by now."""
    world = _world()
    world.hold(ME, HALF, "n0", expires_at=10)
    world.expire(10)

    with pytest.raises(errors.LedgerError, match="no hold"):
        world.confirm("me")


def test_a_pod_with_a_grant_is_not_placed_again() -> None:
    """Deciding twice would move a running pod to another card."""
    world = _world()
    world.hold(ME, HALF, "n0", expires_at=10)
    world.confirm("me")

    with pytest.raises(errors.LedgerError, match="lab/train already has its grant"):
        world.hold(ME, HALF, "n1", expires_at=20)


def test_a_hold_on_a_node_that_is_gone_is_refused() -> None:
    """An unknown name is an answer, not an exception."""
    answer = _world().hold(ME, HALF, "nowhere", expires_at=1)

    assert isinstance(answer, refusals.Refusal)
    assert answer.text == "there is no node nowhere"


def test_grants_wait_for_a_node_that_comes_back() -> None:
    """Its pods may still run; nothing is given twice when it returns."""
    world = _world()
    world.hold(ME, HALF, "n0", expires_at=10)
    world.confirm("me")
    world.remove_node("n0")

    assert world.best(HALF, limit=0) == ["n1"]
    world.set_node(node("n0", 5))
    assert world.best(HALF, limit=0) == ["n1"]
    assert world.release("me") is not None
    assert set(world.best(HALF, limit=0)) == {"n0", "n1"}


def test_a_grant_of_a_vanished_node_can_be_released() -> None:
    """A pod that ends while its node is away leaves nothing behind."""
    world = _world()
    world.hold(ME, HALF, "n0", expires_at=10)
    world.remove_node("n0")
    world.release("me")
    world.set_node(node("n0", 5))

    assert set(world.best(HALF, limit=0)) == {"n0", "n1"}
    assert list(world.all_grants()) == []


def test_a_policy_that_is_not_there_loses_no_hold() -> None:
    """Whoever names one that the fleet does not have gets the default."""
    world = fleet.Fleet(binpack.Binpack())
    world.set_node(node("n0", 5))
    world.hold(ME, HALF, "n0", expires_at=10)

    assert isinstance(
        world.hold(ME, pod(share(4), cards_by="spread"), "n0", expires_at=9), fleet.Hold
    )


def test_a_hold_has_to_end_at_some_time() -> None:
    """Not a number is later than any time."""
    with pytest.raises(ValueError, match="has to end"):
        _world().hold(ME, HALF, "n0", expires_at=float("nan"))


def test_releasing_nothing_is_nothing() -> None:
    """A pod that never had a grant may end, too."""
    assert _world().release("stranger") is None
