"""The shared files on disk: made whole, and never believed unchecked.

Limits are *mapped* to be changed, so that a tenant sees every word of them change at once. Regions
and seats can be written by tenants, who may also cut them short, and touching a page that is gone
kills the process that does it; so the node side *reads* those, and never maps them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn, TypeVar

from partage.core import errors
from partage.fence.store import layout

File = layout.Limits | layout.Region | layout.Seat | layout.GroupLimits | layout.GroupRegion
Kind = TypeVar(
    "Kind", layout.Limits, layout.Region, layout.Seat, layout.GroupLimits, layout.GroupRegion
)

_MAGIC: dict[type[File], int] = {
    layout.Limits: layout.LIMITS_MAGIC,
    layout.Region: layout.REGION_MAGIC,
    layout.Seat: layout.SEAT_MAGIC,
    layout.GroupLimits: layout.GROUP_LIMITS_MAGIC,
    layout.GroupRegion: layout.GROUP_REGION_MAGIC,
}
_HEADER = ctypes.sizeof(ctypes.c_uint64) + 2 * ctypes.sizeof(ctypes.c_uint32)


class OtherVersion(errors.FenceError):
    """A file of another version of Partage, as it is after an update."""


def blank(kind: type[Kind]) -> Kind:
    """A file of this kind with its header and nothing else."""
    return kind(magic=_MAGIC[kind], version=layout.VERSION, size=ctypes.sizeof(kind))


def write(path: Path, content: File, *, mode: int, owner: tuple[int, int] = (-1, -1)) -> None:
    """Write a new file; its mode is the given one, whatever the umask."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(bytes(content))
        file.flush()
        os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)


def settle_folder(path: Path, mode: int, owner: tuple[int, int]) -> None:
    """Give a folder that was made here its owner and its mode.

    It may lie in a folder of somebody else, who may have put another thing in its place meanwhile:
    root would give that away.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it belongs to somebody else", str(path))
        os.fchown(fd, *owner)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


@contextlib.contextmanager
def opened(path: Path, *, writable: bool = False) -> Iterator[int]:
    """A descriptor of a regular file, or a FenceError that says why there is none."""
    flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(path, flags)
    except OSError as error:
        _refuse(path, error)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _damaged(path, "is not a regular file")
        yield fd
    finally:
        os.close(fd)


def read(path: Path, kind: type[Kind]) -> Kind:
    """A copy of a file's content as it is now."""
    with opened(path) as fd:
        return copied(path, fd, kind)


def copied(path: Path, fd: int, kind: type[Kind]) -> Kind:
    """A copy of an open file's content; what others write meanwhile may be in it or not."""
    content = os.pread(fd, ctypes.sizeof(kind) + 1, 0)
    _check(path, content[:_HEADER], os.fstat(fd).st_size, kind)
    if len(content) != ctypes.sizeof(kind):
        raise _damaged(path, "changed its size while it was read")
    return kind.from_buffer_copy(content)


@contextlib.contextmanager
def mapped(path: Path, kind: type[Kind]) -> Iterator[Kind]:
    """The file itself: what is stored is seen by everybody who maps it.

    Only for files that their owner alone can write. The mapping lasts as long as the yielded
    value or a part of it.
    """
    with opened(path, writable=True) as fd:
        _check(path, os.pread(fd, _HEADER, 0), os.fstat(fd).st_size, kind)
        yield kind.from_buffer(mmap.mmap(fd, ctypes.sizeof(kind)))


def _check(path: Path, header: bytes, size: int, kind: type[File]) -> None:
    if len(header) < _HEADER:
        raise _damaged(path, f"has only {len(header)} bytes")
    magic = int.from_bytes(header[:8], "little")
    version, promised = (int.from_bytes(header[i : i + 4], "little") for i in (8, 12))
    if magic != _MAGIC[kind]:
        raise _damaged(path, f"is not a {kind.__name__.lower()} file of Partage")
    if version != layout.VERSION:
        raise OtherVersion(
            f"{path} has layout version {version}, but this Partage knows only {layout.VERSION}",
            instead="use the Partage that made it, or end the tenant and start it again",
        )
    if not size == promised == ctypes.sizeof(kind):
        expected = ctypes.sizeof(kind)
        raise _damaged(path, f"has {size} bytes and claims {promised}, instead of {expected}")


def _refuse(path: Path, error: OSError) -> NoReturn:
    if isinstance(error, FileNotFoundError):
        what, instead = "does not exist", "check the name and --root"
    elif isinstance(error, PermissionError):
        what, instead = "may not be opened by this user", "do it as its owner, or as root"
    else:
        what, instead = f"cannot be opened ({error.strerror})", "check its file system"
    raise errors.FenceError(f"{path} {what}", instead=instead) from error


def _damaged(path: Path, what: str) -> errors.FenceError:
    return errors.FenceError(
        f"{path} {what}", instead="the file is damaged: end its tenant and start it again"
    )
