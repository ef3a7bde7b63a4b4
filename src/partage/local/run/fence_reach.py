"""The reach of the fence: whether it gets into a program at all.

The fence is a library that the dynamic loader puts into a program (``LD_PRELOAD``). A program that
is linked statically has no loader, and where a program gets other rights than its user has, the
loader does not look at that variable. A script is judged by its interpreter. All of this is at the
beginning of a file, so every start can afford to look there.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct

_PAGE = 4096
_DEEPEST = 5  # a script's interpreter may be a script; the kernel goes no deeper
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_SET_GROUP = stat.S_ISGID | stat.S_IXGRP  # the first alone means something else
_CAPABILITIES = "security.capability"
_CLASS = struct.calcsize("P") // 4  # of an ELF file: 1 has 32 bits, 2 has 64
_HEADERS = {1: ("I", 28, 42), 2: ("Q", 32, 54)}  # where a class has their offset, and their number
_LOADER = 3  # PT_INTERP
_LARGEST_TABLE = 1 << 16  # bytes; the kernel starts no program with more


def hindrance(program: str) -> str:
    """Why the fence will not be in a program; empty if it will, or if the program cannot start."""
    for _ in range(_DEEPEST):
        try:
            fd = os.open(program, _FLAGS)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{program} cannot be read ({error.strerror})"
        try:
            page = _beginning(fd)
            if not page.startswith(b"#!"):
                return _rights(fd) or _loader(fd, page)
        finally:
            os.close(fd)
        program = _interpreter(page)
    return ""


def _beginning(fd: int) -> bytes:
    """Of a file; a folder has none, and will not start."""
    try:
        return os.pread(fd, _PAGE, 0)
    except OSError:
        return b""


def _interpreter(page: bytes) -> str:
    line = page[2:].partition(b"\n")[0].partition(b"\0")[0]  # the kernel reads no further either
    words = line.split(maxsplit=1)
    return os.fsdecode(words[0]) if words else ""


def _rights(fd: int) -> str:
    """What it may do that its user may not; a disk that is mounted so gives it nothing."""
    rights = _other_rights(fd)
    if not rights or os.fstatvfs(fd).f_flag & os.ST_NOSUID:
        return ""
    return f"it {rights}, and the loader keeps libraries of its user out of such programs"


def _other_rights(fd: int) -> str:
    status = os.fstat(fd)
    if status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid():
        return "runs as another user (set-user-ID)"
    if status.st_mode & _SET_GROUP == _SET_GROUP and status.st_gid != os.getegid():
        return "runs as another group (set-group-ID)"
    with contextlib.suppress(OSError):  # it has none, or its disk knows none
        if os.getuid() != 0 and os.getxattr(fd, _CAPABILITIES):  # root has them all
            return "has capabilities of its own"
    return ""


def _loader(fd: int, page: bytes) -> str:
    if not page.startswith(b"\x7fELF"):
        return ""
    try:
        if page[4] != _CLASS:
            return "it is for a machine with other addresses than the fence"
        types = _segments(fd, page)
    except (struct.error, IndexError, OverflowError, OSError):
        return ""  # it is damaged, and will not start
    return "" if _LOADER in types else "it is linked statically, and has no loader"


def _segments(fd: int, page: bytes) -> list[int]:
    """The types of its program headers."""
    offset_format, offset_at, number_at = _HEADERS[_CLASS]
    (offset,) = struct.unpack_from(offset_format, page, offset_at)
    size, number = struct.unpack_from("HH", page, number_at)
    table = os.pread(fd, min(size * number, _LARGEST_TABLE), offset)
    return [struct.unpack_from("I", table, size * index)[0] for index in range(number)]
