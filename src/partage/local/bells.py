"""A bell: it rings when somebody's lease is closed, or when somebody rings it.

The kernel tells whoever watches a folder (``inotify``) that a file in it, open for writing, was
closed; that includes the files of a killed process. So those who wait sleep until something has
really changed, and need nobody who tells them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
from collections.abc import Iterator
from pathlib import Path

_CLOSE_WRITE = 0x8  # IN_CLOSE_WRITE
_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK  # IN_CLOEXEC and IN_NONBLOCK are these
_MOST = 1 << 16  # bytes of events to read at once


class Bell:
    """To be waited for; where the kernel has no more of them, waiting just takes its time."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    @property
    def rings(self) -> bool:
        """Whether the kernel tells."""
        return self._fd is not None

    def wait(self, timeout_s: float) -> bool:
        """Until it rings, or until the time is over; whether it rang."""
        if self._fd is None:
            select.select([], [], [], timeout_s)
            return False
        rang, _, _ = select.select([self._fd], [], [], timeout_s)
        if rang:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._fd, _MOST):
                    pass
        return bool(rang)


@contextlib.contextmanager
def hung(folder: Path) -> Iterator[Bell]:
    """A bell at a folder of leases."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(_FLAGS)
    if fd < 0:  # a user has 128 of them, usually
        yield Bell(None)
        return
    try:
        watched = libc.inotify_add_watch(fd, os.fsencode(folder), _CLOSE_WRITE)
        yield Bell(fd if watched >= 0 else None)
    finally:
        os.close(fd)


def ring(lease: Path) -> None:
    """Wake those who wait, by opening and closing one's own lease; its lock stays."""
    with contextlib.suppress(OSError):
        os.close(os.open(lease, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
