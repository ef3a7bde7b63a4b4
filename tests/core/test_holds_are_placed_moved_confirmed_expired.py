"""Holds: a reservation has one place and one end."""

from __future__ import annotations

import pytest

from partage.core import errors, grants, refusals
from partage.core import fleet as fleets
from partage.core.policies import binpack
from tests.core.small_fleets import fleet_of, node, pod, share

ME = grants.Pod("me", "lab", "train")
HALF = pod(share(5))


def _fleet() -> fleets.Fleet:
    return fleet_of(node("n0", 5), node("n1", 5))


def test_what_is_held_is_not_given_to_others() -> None:
    """A hold counts like a grant."""
    fleet = _fleet()
    fleet.hold(ME, HALF, "n0", expires_at=10)

    assert fleet.best(HALF, limit=0) == ["n1"]


def test_a_moved_hold_frees_its_old_place() -> None:
    """The same pod holds at one place only."""
    fleet = _fleet()
    fleet.hold(ME, HALF, "n0", expires_at=10)
    fleet.hold(ME, HALF, "n1", expires_at=20)

    assert fleet.best(HALF, limit=0) == ["n0"]
    assert fleet.hold_of("me") is not None
    assert fleet.expire(10) == []


def test_a_move_that_fails_leaves_the_hold_where_it_was() -> None:
    """Being refused elsewhere loses nothing."""
    fleet = _fleet()
    fleet.hold(grants.Pod("other"), HALF, "n1", expires_at=99)
    before = fleet.hold(ME, HALF, "n0", expires_at=10)

    assert isinstance(fleet.hold(ME, HALF, "n1", expires_at=20), refusals.Refusal)
    assert fleet.hold_of("me") == before


def test_a_hold_expires_when_its_time_has_come_and_not_before() -> None:
    """Time is the caller's."""
    fleet = _fleet()
    fleet.hold(ME, HALF, "n0", expires_at=10)

    assert fleet.expire(9.9) == []
    assert [grant.pod for grant in fleet.expire(10)] == [ME]
    assert set(fleet.best(HALF, limit=0)) == {"n0", "n1"}


def test_a_confirmed_hold_does_not_expire() -> None:
    """Confirming twice is the same as once."""
    fleet = _fleet()
    fleet.hold(ME, HALF, "n0", expires_at=10)

    assert fleet.confirm("me") == fleet.confirm("me")
    assert fleet.expire(1000) == []
    assert fleet.grant_of("me") is not None
    assert fleet.hold_of("me") is None


def test_confirming_an_expired_hold_is_an_error() -> None:
    """Its place may belong to somebody else by now."""
    fleet = _fleet()
    fleet.hold(ME, HALF, "n0", expires_at=10)
    fleet.expire(10)

    with pytest.raises(errors.LedgerError, match="no hold"):
        fleet.confirm("me")


def test_a_pod_with_a_grant_is_not_placed_again() -> None:
    """Deciding twice would move a running pod to another card."""
    fleet = _fleet()
    fleet.hold(ME, HALF, "n0", expires_at=10)
    fleet.confirm("me")

    with pytest.raises(errors.LedgerError, match="lab/train already has its grant"):
        fleet.hold(ME, HALF, "n1", expires_at=20)


def test_a_hold_on_a_node_that_is_gone_is_refused() -> None:
    """An unknown name is an answer, not an exception."""
    answer = _fleet().hold(ME, HALF, "nowhere", expires_at=1)

    assert isinstance(answer, refusals.Refusal)
    assert answer.text == "there is no node nowhere"


def test_grants_wait_for_a_node_that_comes_back() -> None:
    """Its pods may still run; nothing is given twice when it returns."""
    fleet = _fleet()
    fleet.hold(ME, HALF, "n0", expires_at=10)
    fleet.confirm("me")
    fleet.remove_node("n0")

    assert fleet.best(HALF, limit=0) == ["n1"]
    fleet.set_node(node("n0", 5))
    assert fleet.best(HALF, limit=0) == ["n1"]
    assert fleet.release("me") is not None
    assert set(fleet.best(HALF, limit=0)) == {"n0", "n1"}


def test_a_grant_of_a_vanished_node_can_be_released() -> None:
    """A pod that ends while its node is away leaves nothing behind."""
    fleet = _fleet()
    fleet.hold(ME, HALF, "n0", expires_at=10)
    fleet.remove_node("n0")
    fleet.release("me")
    fleet.set_node(node("n0", 5))

    assert set(fleet.best(HALF, limit=0)) == {"n0", "n1"}
    assert list(fleet.all_grants()) == []


def test_a_policy_that_is_not_there_loses_no_hold() -> None:
    """Whoever names one that the fleet does not have gets the default."""
    fleet = fleets.Fleet(binpack.Binpack())
    fleet.set_node(node("n0", 5))
    fleet.hold(ME, HALF, "n0", expires_at=10)

    assert isinstance(
        fleet.hold(ME, pod(share(4), cards_by="spread"), "n0", expires_at=9), fleets.Hold
    )


def test_a_hold_has_to_end_at_some_time() -> None:
    """Not a number is later than any time."""
    with pytest.raises(ValueError, match="has to end"):
        _fleet().hold(ME, HALF, "n0", expires_at=float("nan"))


def test_releasing_nothing_is_nothing() -> None:
    """A pod that never had a grant may end, too."""
    assert _fleet().release("stranger") is None
