"""Probing: which fences this machine has, why it has not the others, and what to do about it.

The facts are gathered in one place and judged in another, so that every answer can be tested.
Nothing is started or changed.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import msgspec

from partage.fence import driver, library, mps_control
from partage.fence.levels import Level, Probe

CGROUPS = Path("/sys/fs/cgroup")
_FIRST_MPS = 495  # CUDA 11.5, the first whose MPS limits memory


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the answers depend on."""

    driver: str = ""  # its version; empty: there is none
    no_driver: str = ""  # why
    memory_limits: bool = False  # whether its NVML has the function
    cgroups: bool = False  # whether /sys/fs/cgroup is of version 2
    is_root: bool = False
    mps_control: str = ""  # the path of the program; empty: there is none
    library: library.Library


def facts(
    *, version: str = "", problem: str = "", memory_limits: bool = False, cgroups: Path = CGROUPS
) -> Facts:
    """Look at this machine; what NVML says about the driver is passed in."""
    return Facts(
        driver=version,
        no_driver=problem,
        memory_limits=memory_limits,
        cgroups=(cgroups / "cgroup.controllers").is_file(),
        is_root=os.geteuid() == 0,
        mps_control=shutil.which(mps_control.PROGRAM) or "",
        library=library.find(),
    )


def probes(found: Facts) -> tuple[Probe, ...]:
    """One answer for each level, from the strongest."""
    return (_driver(found), _mps(found), _hook(found), Probe(Level.ADVISORY, available=True))


def _driver(found: Facts) -> Probe:
    if not found.driver:
        return _none(Level.DRIVER, found)
    if _major(found.driver) < driver.FIRST_VERSION or not found.memory_limits:
        return _not(
            Level.DRIVER,
            f"driver {found.driver} has no memory limits",
            f"install a driver of version {driver.FIRST_VERSION} or newer",
        )
    if not found.cgroups:
        return _not(
            Level.DRIVER,
            "cgroups of version 2 are not mounted at /sys/fs/cgroup",
            "boot with systemd.unified_cgroup_hierarchy=1",
        )
    if not found.is_root:
        return _not(Level.DRIVER, "only root may set the limits", "do it as root")
    return Probe(Level.DRIVER, available=True)


def _mps(found: Facts) -> Probe:
    if not found.driver:
        return _none(Level.MPS, found)
    if _major(found.driver) < _FIRST_MPS:
        return _not(
            Level.MPS,
            f"MPS of driver {found.driver} limits no memory",
            f"install a driver of version {_FIRST_MPS} or newer",
        )
    if not found.mps_control:
        return _not(
            Level.MPS,
            f"{mps_control.PROGRAM} is not in the PATH",
            "install the driver's compute utilities, which have it",
        )
    return Probe(Level.MPS, available=True)


def _hook(found: Facts) -> Probe:
    if found.library.problem:
        return _not(Level.HOOK, found.library.problem, found.library.remedy)
    return Probe(Level.HOOK, available=True)


def _none(level: Level, found: Facts) -> Probe:
    reason = f"the NVIDIA driver does not answer ({found.no_driver})"
    return _not(level, reason, "install it; after an update, reload it or reboot; try `nvidia-smi`")


def _not(level: Level, reason: str, remedy: str) -> Probe:
    return Probe(level, available=False, reason=reason, remedy=remedy)


def _major(version: str) -> int:
    match = re.match(r"\d+", version)
    return int(match[0]) if match else 0
