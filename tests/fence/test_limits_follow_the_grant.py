"""Limits: what a grant means for a fence, and what contradicts itself."""

from __future__ import annotations

import pytest
from hypothesis import given

from partage.core import demands, errors, grants
from partage.fence.store import layout, limits
from tests.fence import small_limits, strategies

MIB = 1 << 20
CARD = small_limits.uuid(1)


def granted(
    *shares: grants.Share,
    mode: demands.ComputeMode = demands.ComputeMode.BEST_EFFORT,
    ceiling_percent: int = 0,
    enforced: bool = True,
) -> limits.Limits:
    """The limits of a container with these shares."""
    container = grants.ContainerGrant(
        name="c",
        shares=shares,
        compute_mode=mode,
        compute_ceiling_percent=ceiling_percent,
        memory_enforced=enforced,
    )
    return limits.granted(container, context_bytes={CARD: 300 * MIB})


def share(
    memory_mib: int = 1024, percent: int = 0, *, uuid: str = CARD, exclusive: bool = False
) -> grants.Share:
    """A share of one card."""
    return grants.Share(
        uuid=uuid, index=0, memory_mib=memory_mib, compute_percent=percent, exclusive=exclusive
    )


def test_memory_is_counted_in_bytes_and_contexts_by_card() -> None:
    """MiB of the grant; the cost of a context where it was measured, else 0."""
    granted_limits = granted(share(1024), share(512, uuid=small_limits.uuid(2)))

    assert [card.memory_bytes for card in granted_limits.cards] == [1024 * MIB, 512 * MIB]
    assert [card.context_bytes for card in granted_limits.cards] == [300 * MIB, 0]
    assert [card.mode for card in granted_limits.cards] == [limits.Mode.NONE] * 2
    assert not granted_limits.gated


@pytest.mark.parametrize(
    ("mode", "ceiling_percent", "expected"),
    [
        (demands.ComputeMode.FIXED, 0, (limits.Mode.FIXED, 300_000, 0)),
        (demands.ComputeMode.BURST, 0, (limits.Mode.BURST, 300_000, 1_000_000)),
        (demands.ComputeMode.BURST, 80, (limits.Mode.BURST, 300_000, 800_000)),
        (demands.ComputeMode.BEST_EFFORT, 0, (limits.Mode.BEST_EFFORT, 300_000, 0)),
        (demands.ComputeMode.NODE, 0, (limits.Mode.BEST_EFFORT, 300_000, 0)),
    ],
)
def test_compute_is_counted_in_millionths(
    mode: demands.ComputeMode, ceiling_percent: int, expected: tuple[limits.Mode, int, int]
) -> None:
    """Thirty percent in every mode; a burst without a ceiling may use the whole card."""
    (card,) = granted(share(percent=30), mode=mode, ceiling_percent=ceiling_percent).cards

    assert (card.mode, card.share_millionths, card.ceiling_millionths) == expected
    assert card.gated


def test_who_asks_for_no_compute_is_not_limited_in_it() -> None:
    """Whatever its mode says."""
    (card,) = granted(share(), mode=demands.ComputeMode.FIXED).cards

    assert card.mode is limits.Mode.NONE


def test_memory_that_is_not_enforced_or_not_asked_for_has_no_quota() -> None:
    """T9k's percentages are for placing only, and a share of compute sets no memory aside."""
    assert granted(share(), enforced=False).cards[0].memory_bytes == limits.NO_QUOTA
    assert granted(share(0, 20)).cards[0].memory_bytes == limits.NO_QUOTA


def test_an_exclusive_card_has_no_limits() -> None:
    """Not even all of its memory, which would be less than the driver gives."""
    (card,) = granted(share(81920, 100, exclusive=True), mode=demands.ComputeMode.FIXED).cards

    assert card == limits.CardLimits(uuid=CARD, context_bytes=300 * MIB)


def test_several_shares_of_a_card_are_one_limit() -> None:
    """Two slices of the same card for one container add up, and never above the card."""
    granted_limits = granted(share(1024, 60), share(512, 60), mode=demands.ComputeMode.FIXED)

    assert [(c.memory_bytes, c.share_millionths) for c in granted_limits.cards] == [
        (1536 * MIB, 1_000_000)
    ]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"uuid": "GPU-1"}, "this is not a valid uuid; write the uuid as `nvidia-smi -L` shows it"),
        ({"uuid": "GPU-ABCDEF00-0000-4000-8000-000000000001"}, "this is not a valid uuid"),
        ({"uuid": f"MIG-{CARD}/0/0"}, "this is not a valid uuid"),
        ({"memory_bytes": 0}, "0 bytes is not a valid quota"),
        ({"memory_bytes": 1 << 64}, "is not a valid quota"),
        ({"context_bytes": -1}, "is not a valid quota"),
        ({"mode": limits.Mode.FIXED}, "mode fixed needs a share"),
        ({"share_millionths": 1}, "mode none does not limit the share"),
        ({"mode": limits.Mode.FIXED, "share_millionths": layout.WHOLE + 1}, "0 and 100 %"),
        (
            {"mode": limits.Mode.BURST, "share_millionths": 500_000, "ceiling_millionths": 400_000},
            "the ceiling of 40 % is below the share of 50 %",
        ),
        (
            {"mode": limits.Mode.FIXED, "share_millionths": 1, "ceiling_millionths": 1},
            "mode fixed has no ceiling; choose mode burst",
        ),
    ],
)
def test_limits_that_contradict_themselves_cannot_be_made(
    wrong: dict[str, object], says: str
) -> None:
    """The message names the card, the problem and what to write."""
    with pytest.raises(errors.InputError, match=says):
        limits.CardLimits(**{"uuid": CARD} | wrong)  # type: ignore[arg-type]


def test_a_tenant_has_one_to_sixteen_different_cards() -> None:
    """As many as the shared file has room for."""
    assert len(small_limits.share(*range(16)).cards) == 16
    for numbers in ((), (1, 1), tuple(range(17))):
        with pytest.raises(errors.InputError, match=r"cards|twice"):
            small_limits.share(*numbers)


@given(before=strategies.card_limits(0), change=strategies.changes())
def test_a_change_gives_sound_limits_or_says_why_not(
    before: limits.CardLimits, change: limits.Change
) -> None:
    """What is asked for is what comes out, and what is not asked for stays."""
    try:
        after = limits.changed(before, change)
    except errors.InputError:
        return
    assert after.memory_bytes == (change.memory_bytes or before.memory_bytes)
    assert after.paused == (before.paused if change.paused is None else change.paused)
    assert change.mode in (None, after.mode)
    if change.compute_percent is not None and after.mode is not limits.Mode.NONE:
        assert after.share_millionths == change.compute_percent * 10_000
    if change.ceiling_percent is not None:
        assert after.ceiling_millionths == change.ceiling_percent * 10_000
    if change == limits.Change(memory_bytes=change.memory_bytes, paused=change.paused):
        assert (after.mode, after.share_millionths) == (before.mode, before.share_millionths)


def test_a_change_of_compute_alone_finds_its_mode() -> None:
    """A share makes it fixed, a ceiling burst, and 0 ends it."""
    free = limits.CardLimits(uuid=CARD)
    fixed = limits.changed(free, limits.Change(compute_percent=30))
    burst = limits.changed(fixed, limits.Change(ceiling_percent=80))

    assert (fixed.mode, fixed.share_millionths) == (limits.Mode.FIXED, 300_000)
    assert (burst.mode, burst.ceiling_millionths) == (limits.Mode.BURST, 800_000)
    assert limits.changed(burst, limits.Change(compute_percent=0)) == free
