"""Files that tenants made larger than they should be are cut back to their size.

A tenant writes its region and its seat, so it can also append to them, and they lie in the host's
memory. Nothing forbids that to a file that must be writable; so the agent cuts them back now and
then. What is cut off was never part of the layout, and nobody has it mapped. Files of another
version have another size, and processes that have them mapped: they are left alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from partage.core import errors
from partage.fence.store import layout, roots, seats, shared_files

_BLOCK = 512  # bytes, by which the kernel tells what is taken; `fallocate` takes more than the size
_SLACK = 4 << 20  # bytes; a huge page is 2 MiB


def trim(root: roots.Root) -> list[Path]:
    """Cut all files of tenants back to their size; the answer is those that were larger."""
    return [path for path, size in _written(root) if _cut(path, size)]


def _written(root: roots.Root) -> Iterator[tuple[Path, int]]:
    """What tenants may write, and how large it is."""
    others = {folder for folder in root.tenants.glob("*") if _is_of_another_version(folder)}
    spared = {uuid for folder in others for uuid in seats.linked(folder)}
    for path in root.tenants.glob("*/region"):
        if path.parent not in others:
            yield path, ctypes.sizeof(layout.Region)
    for path in root.seats.glob("*/*"):
        if path.parent.name not in spared:
            yield path, ctypes.sizeof(layout.Seat)


def _is_of_another_version(folder: Path) -> bool:
    """By its limits: what tenants write themselves could say anything."""
    try:
        shared_files.read(folder / "limits", layout.Limits)
    except shared_files.OtherVersion:
        return True
    except errors.FenceError:
        return False
    return False


def _cut(path: Path, size: int) -> bool:
    with contextlib.suppress(OSError, errors.FenceError):  # gone meanwhile
        status = path.lstat()
        if status.st_size <= size and status.st_blocks * _BLOCK <= size + _SLACK:
            return False
        with shared_files.opened(path, writable=True) as fd:
            os.ftruncate(fd, size)
            return True
    return False
