"""Disk problems: why nothing can be written in a folder, and what to do about it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from partage.core import errors
from partage.local.state import location

_FULL = (errno.ENOSPC, errno.EDQUOT)
_DOCTOR = "see `partage doctor`"


class Unusable(errors.LedgerError):
    """The state folder cannot be used.

    ``remedy`` is what to do; the doctor says only that, since it is what the others refer to.
    """

    def __init__(self, what: str, *, remedy: str, ask_doctor: bool = False) -> None:
        self.remedy = remedy
        super().__init__(what, instead=f"{_DOCTOR}: {remedy}" if ask_doctor else remedy)


def trouble(folder: Path, least_bytes: int) -> OSError | None:
    """Why so much cannot be written there; the file that tries it never has a name."""
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        telling = (errno.EROFS, errno.EACCES, *_FULL)
        return error if error.errno in telling else None  # not every file system has such files
    try:
        os.posix_fallocate(fd, 0, least_bytes)
    except OSError as error:
        return error if error.errno in (*_FULL, errno.EIO, errno.EROFS) else None
    finally:
        os.close(fd)
    return None


def is_read_only(folder: Path) -> bool:
    """Whether the disk of a folder is mounted read-only, whatever the modes of its files are."""
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def remedy(error: OSError | None) -> str:
    """What to do about it; None is what nobody knows."""
    if error is None:
        return f"name another folder in {location.VARIABLE}"
    if error.errno in _FULL:
        return "make room: nothing can be granted until then"
    if error.errno == errno.EROFS:
        return f"mount it writable, or name another folder in {location.VARIABLE}"
    return f"name a folder of yours in {location.VARIABLE}, or ask for `sudo partage setup`"
