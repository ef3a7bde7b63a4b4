"""Levels: which a machine has and why not the others, and which of them to use."""

from __future__ import annotations

import pathlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core import errors
from partage.fence import advisory, driver, hook, levels, library, limits, mps, probing, roots
from partage.fence.levels import Level
from tests.fence import making

ALL = probing.Facts(
    driver="615.71.05",
    memory_limits=True,
    cgroups=True,
    is_root=True,
    mps_control="/usr/bin/nvidia-cuda-mps-control",
    library=library.Library(pathlib.Path("/lib/libpartage.so")),
)


def probe(level: Level, **changed: object) -> levels.Probe:
    """The answer for a level on a machine that lacks something."""
    found = probing.probes(msgspec.structs.replace(ALL, **changed))
    return next(each for each in found if each.level is level)


def answers(*available: Level) -> tuple[levels.Probe, ...]:
    """Answers of a machine that has these levels."""
    return tuple(
        levels.Probe(level, level in available, "it is missing", f"get {level}") for level in Level
    )


def test_the_levels_are_in_order() -> None:
    """From the one that is hardest to get around."""
    assert sorted(Level, reverse=True) == [Level.DRIVER, Level.MPS, Level.HOOK, Level.ADVISORY]
    assert Level.DRIVER > Level.MPS > Level.HOOK > Level.ADVISORY
    assert Level("hook") >= Level.HOOK


def test_a_machine_that_has_everything_has_all_levels() -> None:
    """From the strongest, with nothing to say."""
    assert probing.probes(ALL) == tuple(levels.Probe(level, available=True) for level in Level)


@pytest.mark.parametrize(
    ("level", "lacking", "reason", "remedy"),
    [
        (
            Level.DRIVER,
            {"driver": "", "no_driver": "NVML: NVML Shared Library Not Found"},
            "the NVIDIA driver does not answer (NVML: NVML Shared Library Not Found)",
            "install it",
        ),
        (Level.DRIVER, {"driver": "580.1"}, "driver 580.1 has no memory limits", "615 or newer"),
        (Level.DRIVER, {"memory_limits": False}, "has no memory limits", "615 or newer"),
        (Level.DRIVER, {"driver": "odd"}, "driver odd has no memory limits", "615 or newer"),
        (Level.DRIVER, {"cgroups": False}, "version 2 are not mounted", "unified_cgroup_hierarchy"),
        (Level.DRIVER, {"is_root": False}, "only root may set the limits", "as root"),
        (Level.MPS, {"driver": ""}, "the NVIDIA driver does not answer", "install it"),
        (Level.MPS, {"driver": "470.5"}, "MPS of driver 470.5 limits no memory", "495 or newer"),
        (Level.MPS, {"mps_control": ""}, "is not in the PATH", "compute utilities"),
        (
            Level.HOOK,
            {"library": library.Library(pathlib.Path("/x"), "/x is not there", "build it")},
            "/x is not there",
            "build it",
        ),
    ],
)
def test_what_is_missing_is_told_with_what_to_do(
    level: Level, lacking: dict[str, object], reason: str, remedy: str
) -> None:
    """One reason for each level, the first that stands in the way."""
    found = probe(level, **lacking)

    assert not found.available
    assert reason in found.reason
    assert remedy in found.remedy


def test_words_always_work() -> None:
    """On a machine that has nothing at all."""
    nothing = probing.Facts(library=library.Library(pathlib.Path("/x"), "none", "build it"))

    assert levels.strongest(probing.probes(nothing)) is Level.ADVISORY


def test_this_machine_can_be_probed(tmp_path: pathlib.Path) -> None:
    """Nothing is assumed about it."""
    (tmp_path / "cgroup.controllers").touch()

    found = probing.facts(version="615.1", memory_limits=True, cgroups=tmp_path)

    assert found.cgroups
    assert not probing.facts(cgroups=tmp_path / "none").cgroups
    assert [each.level for each in probing.probes(found)] == list(Level)


@given(available=st.sets(st.sampled_from(Level)), minimum=st.sampled_from(Level))
def test_the_strongest_is_chosen_or_refused(available: set[Level], minimum: Level) -> None:
    """Never one that is not there, never one below the minimum."""
    available |= {Level.ADVISORY}
    probes = answers(*available)
    if max(available) < minimum:
        with pytest.raises(errors.FenceError):
            levels.require(probes, minimum)
        return
    assert levels.require(probes, minimum) is max(available)


def test_a_refusal_says_why_and_what_to_do() -> None:
    """For each level that would have been enough."""
    with pytest.raises(errors.FenceError) as told:
        levels.require(answers(Level.HOOK, Level.ADVISORY), Level.MPS)

    assert str(told.value) == (
        "the fence mps is asked for, and this machine has hook"
        " (driver: it is missing; mps: it is missing); get driver or get mps or ask for hook only"
    )


def test_compute_gets_a_fence_of_its_own_where_the_strongest_has_none() -> None:
    """The driver holds memory only."""
    everything, no_mps = answers(*Level), answers(Level.DRIVER, Level.HOOK, Level.ADVISORY)

    assert levels.chosen(everything) == (Level.DRIVER,)
    assert levels.chosen(everything, compute=True) == (Level.DRIVER, Level.MPS)
    assert levels.chosen(no_mps, compute=True) == (Level.DRIVER, Level.HOOK)
    assert levels.chosen(answers(Level.DRIVER), compute=True) == (Level.DRIVER,)
    assert levels.chosen(answers(Level.HOOK, Level.ADVISORY), compute=True) == (Level.HOOK,)


class _NoPort:
    """A port that nobody uses."""

    def set_memory_limits(
        self, uuid: str, cgroup: str, *, soft_bytes: int, hard_bytes: int
    ) -> None:
        """Not called."""

    def memory_limits(self, uuid: str, cgroup: str) -> driver.Found:
        """Not called."""
        raise NotImplementedError


def test_every_level_has_a_fence(root: roots.Root) -> None:
    """Behind one small protocol, which mypy checks here."""
    fences: list[levels.Fence] = [
        driver.Driver(_NoPort()),
        mps.Mps(root.path),
        hook.Hook(root),
        advisory.Advisory(),
    ]

    assert [fence.level for fence in fences] == list(Level)
    assert set(levels.HOLDINGS) == set(Level)


def test_advice_is_given_and_nothing_is_claimed() -> None:
    """The program learns its share; what is in force is nothing."""
    asked = limits.Limits(
        (
            limits.CardLimits(
                uuid=making.uuid(1),
                memory_bytes=making.GIB,
                mode=limits.Mode.FIXED,
                share_millionths=300_000,
            ),
            limits.CardLimits(uuid=making.uuid(2)),
        )
    )
    fence = advisory.Advisory()

    applied = fence.apply(levels.Subject(name="job"), asked)

    assert applied.environment == {
        "PARTAGE_MEMORY_BYTES": f"{making.uuid(1)}={making.GIB}",
        "PARTAGE_COMPUTE_PERCENT": f"{making.uuid(1)}=30",
    }
    assert applied.limits == making.share(1, 2, memory_bytes=limits.NO_QUOTA)
    assert fence.change(levels.Subject(name="job"), asked) == applied
    fence.release(levels.Subject(name="job"), asked)
