"""Disks: why nothing can be written in a folder, and what to do about it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from partage.local import places

_FULL = (errno.ENOSPC, errno.EDQUOT)


def trouble(folder: Path, least_bytes: int) -> OSError | None:
    """Why so much cannot be written there; the file that tries it never has a name."""
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        known = (errno.EROFS, errno.EACCES, *_FULL)
        return error if error.errno in known else None  # not every file system has such files
    try:
        os.posix_fallocate(fd, 0, least_bytes)
    except OSError as error:
        return error if error.errno in (*_FULL, errno.EIO, errno.EROFS) else None
    finally:
        os.close(fd)
    return None


def remedy(found: OSError | None) -> str:
    """What to do about it; None is what nobody knows."""
    if found is None:
        return f"name another folder in {places.VARIABLE}"
    if found.errno in _FULL:
        return "make room: nothing can be granted until then"
    if found.errno == errno.EROFS:
        return f"mount it writable, or name another folder in {places.VARIABLE}"
    return f"name a folder of yours in {places.VARIABLE}, or ask for `sudo partage setup`"
