"""Facts about a machine that its configuration of Slurm has to agree with.

They are gathered once; the checks compare them with what is written, and ask nobody.
"""

from __future__ import annotations

import enum
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from partage.devices import nvml
from partage.slurm import slurm_programs

PRELOAD = Path("/etc/ld.so.preload")


class Kind(enum.StrEnum):
    """What a path is."""

    CHARACTER = "a character device"
    OTHER = "no character device"
    MISSING = "missing"


class File(msgspec.Struct, frozen=True):
    """A path that the configuration names."""

    kind: Kind
    minor: int | None = None  # of a device


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All of them; None is what cannot be facts here."""

    hosts: tuple[str, ...]  # the names of this machine, the short one first
    version: slurm_programs.Version | None
    files: Mapping[str, File]
    devices: tuple[nvml.Device, ...] | None
    no_devices: str = ""  # why there are none
    preload: bool = False  # whether there is a file /etc/ld.so.preload

    def device(self, file: str) -> nvml.Device | None:
        """The card behind a device file, by its minor number."""
        minor = self.files.get(file, File(Kind.MISSING)).minor
        cards = {device.minor: device for device in self.devices or () if device.minor is not None}
        return None if minor is None else cards.get(minor)


def hosts() -> tuple[str, ...]:
    """The names under which slurm.conf may know this machine."""
    full = os.uname().nodename or "localhost"
    return tuple(dict.fromkeys((full.partition(".")[0], full)))


def files(paths: Iterable[str]) -> dict[str, File]:
    """What each path is; links are followed, as slurmd does."""
    return {path: _file(Path(path)) for path in paths}


def _file(path: Path) -> File:
    try:
        state = path.stat()
    except (OSError, ValueError):
        return File(Kind.MISSING)
    if stat.S_ISCHR(state.st_mode):
        return File(Kind.CHARACTER, os.minor(state.st_rdev))
    return File(Kind.OTHER)
