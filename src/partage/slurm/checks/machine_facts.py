"""Facts about a machine that its configuration of Slurm has to agree with.

They are gathered once; the checks compare them with what is written, and ask nobody.
"""

from __future__ import annotations

import enum
import glob
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from partage.devices import nvml
from partage.slurm import slurm_programs
from partage.slurm.checks import plugin_versions

PRELOAD = Path("/etc/ld.so.preload")
_NVIDIA = 195  # the major number of its cards
_LARGEST_FILE = 16 << 20  # bytes of a plugin or a script
_PLUGINS = ("/usr/lib*/slurm", "/usr/lib/*/slurm-wlm", "/usr/lib/*/slurm", "/usr/local/lib*/slurm")


class Kind(enum.StrEnum):
    """What a path is."""

    CHARACTER = "a character device"
    OTHER = "no character device"
    MISSING = "missing"


class File(msgspec.Struct, frozen=True):
    """A path that the configuration names."""

    kind: Kind
    minor: int | None = None  # of a card's device


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All of them; None is what cannot be facts here."""

    hosts: tuple[str, ...]  # the names of this machine, the short one first
    version: slurm_programs.Version | None
    files: Mapping[str, File]
    devices: tuple[nvml.Device, ...] | None
    no_devices: str = ""  # why there are none
    preload: bool = False  # whether there is a file /etc/ld.so.preload
    submit_rule: str | None = None  # the text of the rule for submissions; None: there is none
    submit_script: str | None = None  # of job_submit.lua, likewise
    built_for: Mapping[str, slurm_programs.Version] = MappingProxyType({})  # by plugin

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


def built_for(plugins: Iterable[str]) -> dict[str, slurm_programs.Version]:
    """The version of Slurm that each plugin is for; one that does not tell is left out."""
    versions = {path: plugin_versions.built_for(_content(Path(path)) or b"") for path in plugins}
    return {path: version for path, version in versions.items() if version is not None}


def text(path: Path) -> str | None:
    """What a file says; None if there is none."""
    content = _content(path)
    return None if content is None else content.decode(errors="replace")


def has_slurm_plugin(name: str, setting: str, programs: Path) -> bool:
    """Whether Slurm has a plugin: in its PluginDir, or where it is without this setting."""
    patterns = setting.split(":") if setting else [*_PLUGINS, f"{programs.parent}/lib*/slurm"]
    return any(
        glob.glob(f"{pattern}/{name}.so")  # noqa: PTH207 (of any place)
        for pattern in patterns
    )


def _file(path: Path) -> File:
    try:
        state = path.stat()
    except (OSError, ValueError):
        return File(Kind.MISSING)
    if stat.S_ISCHR(state.st_mode):
        is_card = os.major(state.st_rdev) == _NVIDIA
        return File(Kind.CHARACTER, os.minor(state.st_rdev) if is_card else None)
    return File(Kind.OTHER)


def _content(path: Path) -> bytes | None:
    try:
        if not path.is_file():  # reading another may never end
            return None
        with path.open("rb") as file:
            return file.read(_LARGEST_FILE)
    except (OSError, ValueError):
        return None
