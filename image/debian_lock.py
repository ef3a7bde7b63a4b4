"""The lock of Debian packages: which are in the image, exactly, and by which checksum.

The names below are chosen by hand: Python, and the libraries that its modules and our wheels need.
A test reads all programs of the image and fails if one needs a library that is not in it. What
Debian's dependencies want beyond that (a terminal's database, time zones, a shell) is left out.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path

import msgspec

from image import errors, settings

PATH = Path(__file__).with_name("debian.lock.json")
RELEASE = "trixie"  # Debian 13; its Python is settings.PYTHON

# What runs Python far enough to compile.
INTERPRETER = (
    "libc6",
    "libexpat1",
    f"libpython{settings.PYTHON}-minimal",
    f"python{settings.PYTHON}-minimal",
    "zlib1g",
)
NAMES = (
    *INTERPRETER,
    "base-files",  # the folders, and which Debian it is: scanners and NVIDIA's toolkit look
    "libbz2-1.0",
    "libffi8",  # ctypes
    "libgcc-s1",  # what ends threads, and what was compiled from Rust
    "liblzma5",
    f"libpython{settings.PYTHON}-stdlib",
    "libsqlite3-0",
    "libssl3t64",
    "libstdc++6",  # gRPC and protobuf
    "libuuid1",
    "libzstd1",  # libssl
)


class Package(msgspec.Struct, frozen=True):
    """One package for one machine."""

    name: str
    version: str
    machine: str
    repository: str  # Debian, or Debian-Security
    path: str  # below the repository, on any mirror
    size: int
    sha256: str


class Lock(msgspec.Struct, frozen=True):
    """All packages, and the day on which they were the newest, which the image has as its date."""

    release: str
    day: dt.date
    packages: tuple[Package, ...]

    def packages_for(self, machine: settings.Machine) -> tuple[Package, ...]:
        """Those of one machine."""
        return tuple(package for package in self.packages if package.machine == machine.name)

    @property
    def moment(self) -> dt.datetime:
        """The beginning of the day."""
        return dt.datetime.combine(self.day, dt.time(), dt.UTC)


def read(path: Path = PATH) -> Lock:
    """The lock as it is."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Lock)
    except (OSError, msgspec.DecodeError) as error:
        raise errors.CannotMake(
            f"{path} cannot be read: {error}; take it from git, or make it anew: "
            "make image ARGS=--lock"
        ) from error


def written(lock: Lock) -> bytes:
    """The lock as a file, a line for each fact, so that changes can be read."""
    return msgspec.json.format(msgspec.json.encode(lock), indent=2) + b"\n"


def is_intact(package: Package, content: bytes) -> bool:
    """Whether this is what was locked."""
    return hashlib.sha256(content).hexdigest() == package.sha256
