"""Limits of time alone are set while tenants run; whatever else holds them stays as it is."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partage.core import errors
from partage.fence.store import layout, limits, roots, tenants
from tests.fence import small_limits, strategies

FIRST = small_limits.uuid(0)
QUARTER = limits.Time(mode=limits.Mode.FIXED, share_millionths=250_000)


@pytest.fixture
def tenant(root: roots.Root) -> tenants.Tenant:
    """A tenant of two cards."""
    return tenants.create(root, "job", small_limits.share(0, 1))


def test_the_other_card_and_all_else_stay(root: roots.Root, tenant: tenants.Tenant) -> None:
    """A pause is the watch's, and memory is the grant's."""
    tenants.change(root, "job", limits.Change(paused=True))
    before = tenants.read(root, "job").limits
    tenants.set_time(root, "job", {FIRST: QUARTER})
    first, second = tenants.read(root, "job").limits.cards
    assert first == limits.timed(before.cards[0], QUARTER)
    assert first.paused
    assert second == before.cards[1]


def test_launches_have_to_look_from_then_on(root: roots.Root, tenant: tenants.Tenant) -> None:
    """And no longer when nothing is limited."""
    yielding = limits.Time(yields_to=frozenset({3, 31}))
    for time, gate in ((yielding, 1), (limits.Time(), 0)):
        tenants.set_time(root, "job", {FIRST: time})
        raw = layout.Limits.from_buffer_copy(tenant.limits_path.read_bytes())
        assert raw.gate == gate
        assert raw.card[0].yields_to == sum(1 << place for place in time.yields_to)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(limited=st.lists(strategies.card_limits(0), min_size=1, max_size=4))
def test_what_was_set_is_read(
    root: roots.Root, tenant: tenants.Tenant, limited: list[limits.CardLimits]
) -> None:
    """One after another, to the millionth."""
    for card in limited:
        tenants.set_time(root, "job", {FIRST: card.time})
        assert tenants.read(root, "job").limits.cards[0].time == card.time


def test_who_has_gone_and_cards_of_others_are_left_alone(
    root: roots.Root, tenant: tenants.Tenant
) -> None:
    """Tenants come and go while limits are computed."""
    tenants.set_time(root, "nobody", {FIRST: QUARTER})
    tenants.set_time(root, "job", {small_limits.uuid(7): QUARTER})
    assert tenants.read(root, "job").limits == tenant.limits
    assert tenants.those(root, ["nobody", "job"]) == {"job": tenants.read(root, "job")}


def test_damage_is_told(root: roots.Root, tenant: tenants.Tenant) -> None:
    """Nothing is written into a file that is not what it should be."""
    tenant.limits_path.write_bytes(b"nonsense")
    with pytest.raises(errors.FenceError):
        tenants.set_time(root, "job", {FIRST: QUARTER})
    assert tenants.those(root, ["job"]) == {}


def test_there_are_no_seats_behind_the_last_place() -> None:
    """A limit that cannot be kept cannot be made."""
    with pytest.raises(errors.InputError, match="no such seats"):
        limits.CardLimits(uuid=FIRST, yields_to=frozenset({32}))
    assert [limits.place(seat) for seat in (0, 30, 31, 255)] == [0, 30, 31, 31]
