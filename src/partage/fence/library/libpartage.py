"""The hook's library: where it is, and whether this machine can load it.

``libpartage.so`` is part of the package, in ``partage/lib``, and so are the libraries that stand in
the driver's place, in a folder beside it. A checkout has them after ``make native``, a wheel brings
them along. Where one of them is missing programs would get past the fence by some ways and not by
others, without any message; so then there is no fence.
"""

from __future__ import annotations

import functools
import os
import struct
from pathlib import Path

import msgspec

import partage
from partage.core import errors

NAME = "libpartage.so"
SUBSTITUTES = "substitute"  # the folder of the libraries in the driver's place
CUDA, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
FIXED_LIMITS = Path("/etc/partage/fence/limits")  # takes precedence over PARTAGE_LIMITS

_HEADER = struct.Struct("<4sBB10xHH")  # of an ELF file: magic, class, byte order, type, machine
_ELF, _SHARED = b"\x7fELF", 3


class Library(msgspec.Struct, frozen=True):
    """The library; or the problem that keeps it from being used, with the remedy."""

    path: Path
    problem: str = ""
    remedy: str = ""


def find(lib_folder: Path | None = None) -> Library:
    """The library of this installation."""
    lib = lib_folder or folder()
    parts = [lib / NAME, lib / SUBSTITUTES / CUDA, lib / SUBSTITUTES / NVML]
    problems = (problem for part in parts if (problem := _problem(part)) != ("", ""))
    return Library(lib / NAME, *next(problems, ("", "")))


def folder() -> Path:
    """Where the libraries of this installation are."""
    return Path(partage.__file__).parent / "lib"


def check(library: Library) -> None:
    """Raise an error if the library cannot be used on this machine."""
    if library.problem:
        raise errors.FenceError(library.problem, instead=library.remedy)


def fits(path: Path) -> bool:
    """Whether programs of this machine can load the library at a path."""
    return _problem(path) == ("", "")


def _problem(path: Path) -> tuple[str, str]:
    """What is wrong with a library, and what to do; empty texts if it can be loaded here."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
    except OSError as error:
        remedy = "install Partage from a wheel, or run `make native` in a checkout"
        return f"{path} cannot be read ({error.strerror})", remedy
    return _judged(path, header, _own())


@functools.cache
def _own() -> bytes:
    """The header of a program that runs here: this one's."""
    with Path("/proc/self/exe").open("rb") as file:
        return file.read(_HEADER.size)


def _judged(path: Path, header: bytes, own: bytes) -> tuple[str, str]:
    remedy = "install the wheel for this machine, or run `make native` in a checkout"
    if len(header) < _HEADER.size or header[:4] != _ELF:
        return f"{path} is not a library", remedy
    _, width, order, kind, machine = _HEADER.unpack(header)
    if kind != _SHARED:
        return f"{path} is not a shared library", remedy
    if (width, order, machine) != _HEADER.unpack(own)[1:3] + _HEADER.unpack(own)[4:]:
        return (
            f"{path} is for another architecture than {os.uname().machine}, which this machine has",
            remedy,
        )
    return "", ""
