"""Levels: which a machine has and why not the others, and which of them to use."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core import errors
from partage.fence.levels import advisory, availability, catalog, driver, hook
from partage.fence.levels.catalog import Level
from partage.fence.library import libpartage
from partage.fence.store import limits, roots
from tests.fence import small_limits

LIBRARY = libpartage.Library(pathlib.Path("/lib/libpartage.so"))
NO_LIBRARY = libpartage.Library(pathlib.Path("/x"), "/x cannot be read", "build it")


def probe(level: Level, library: libpartage.Library) -> catalog.Probe:
    """The answer for a level on a machine with this library."""
    return next(probe for probe in availability.probes(library) if probe.level is level)


def answers(*available: Level) -> tuple[catalog.Probe, ...]:
    """Answers of a machine that has these levels."""
    return tuple(
        catalog.Probe(level, level in available, "it is missing", f"get {level}") for level in Level
    )


def test_the_levels_are_in_order() -> None:
    """From the one that is hardest to get around."""
    assert sorted(Level, reverse=True) == [Level.DRIVER, Level.MPS, Level.HOOK, Level.ADVISORY]
    assert Level.DRIVER > Level.MPS > Level.HOOK > Level.ADVISORY
    assert Level("hook") >= Level.HOOK


def test_only_what_can_be_put_up_is_available() -> None:
    """From the strongest; whatever driver the machine has."""
    probes = availability.probes(LIBRARY)

    assert [probe.level for probe in probes] == list(Level)
    assert [probe.level for probe in probes if probe.available] == [Level.HOOK, Level.ADVISORY]
    assert catalog.strongest(probes) is Level.HOOK


@pytest.mark.parametrize(
    ("level", "reason", "remedy"),
    [
        (Level.DRIVER, "Partage cannot put this fence up yet", "use hook"),
        (Level.MPS, "Partage cannot put this fence up yet", "use hook"),
        (Level.HOOK, "/x cannot be read", "build it"),
    ],
)
def test_what_is_missing_is_told_with_what_to_do(level: Level, reason: str, remedy: str) -> None:
    """One reason for each level."""
    missing = probe(level, NO_LIBRARY)

    assert not missing.available
    assert reason in missing.reason
    assert remedy in missing.remedy


def test_words_always_work() -> None:
    """On a machine that has nothing at all."""
    assert catalog.strongest(availability.probes(NO_LIBRARY)) is Level.ADVISORY


def test_this_machine_can_be_probed() -> None:
    """Nothing is assumed about it."""
    assert [probe.level for probe in availability.probes()] == list(Level)


@given(available=st.sets(st.sampled_from(Level)), minimum=st.sampled_from(Level))
def test_the_strongest_is_chosen_or_refused(available: set[Level], minimum: Level) -> None:
    """Never one that is not there, never one below the minimum."""
    available |= {Level.ADVISORY}
    probes = answers(*available)
    if max(available) < minimum:
        with pytest.raises(errors.FenceError):
            catalog.require(probes, minimum)
        return
    assert catalog.require(probes, minimum) is max(available)


def test_a_refusal_says_why_and_what_to_do() -> None:
    """For each level that would have been enough."""
    with pytest.raises(errors.FenceError) as refusal:
        catalog.require(answers(Level.HOOK, Level.ADVISORY), Level.MPS)

    assert str(refusal.value) == (
        "the fence mps is requested, but the strongest available is hook"
        " (driver: it is missing; mps: it is missing); get driver or get mps or request hook only"
    )


class _NoPort:
    """A port that nobody uses."""

    def set_memory_limits(
        self, uuid: str, cgroup: str, *, soft_bytes: int, hard_bytes: int
    ) -> None:
        """Not called."""

    def memory_limits(self, uuid: str, cgroup: str) -> driver.MemoryLimits:
        """Not called."""
        raise NotImplementedError


def test_fences_of_all_levels_are_used_alike(root: roots.Root) -> None:
    """Behind one small protocol, which mypy checks here."""
    fences: list[catalog.Fence] = [
        driver.Driver(_NoPort()),
        hook.Hook(root),
        advisory.Advisory(),
    ]

    assert [fence.level for fence in fences] == [Level.DRIVER, Level.HOOK, Level.ADVISORY]
    assert set(catalog.HOLDINGS) == set(Level)


def test_advice_is_given_and_nothing_is_claimed() -> None:
    """The program learns its share; what is in force is nothing."""
    requested = limits.Limits(
        (
            limits.CardLimits(
                uuid=small_limits.uuid(1),
                memory_bytes=small_limits.GIB,
                mode=limits.Mode.FIXED,
                share_millionths=300_000,
            ),
            limits.CardLimits(uuid=small_limits.uuid(2)),
        )
    )
    fence = advisory.Advisory()

    applied = fence.apply(catalog.Subject(name="job"), requested)

    assert applied.environment == {
        "PARTAGE_MEMORY_BYTES": f"{small_limits.uuid(1)}={small_limits.GIB}",
        "PARTAGE_COMPUTE_PERCENT": f"{small_limits.uuid(1)}=30",
    }
    assert applied.limits == small_limits.share(1, 2, memory_bytes=limits.NO_QUOTA)
    assert fence.change(catalog.Subject(name="job"), requested) == applied
    fence.release(catalog.Subject(name="job"), requested)
