"""Wakeups for those who wait: when a lease is closed, or when somebody sends one.

The kernel tells all who watch a folder (``inotify``) that a file in it, open for writing, was
closed; that includes the files of a killed process. So those who wait sleep until something has
really changed, and nobody has to tell them.
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


class Wakeups:
    """To be waited for; where the kernel sends none, waiting just takes its time."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    @property
    def sent_by_kernel(self) -> bool:
        """Whether the kernel sends them."""
        return self._fd is not None

    def wait(self, timeout_s: float) -> bool:
        """Until there is one, or until the time is over; whether there was one."""
        if self._fd is None:
            select.select([], [], [], timeout_s)
            return False
        ready, _, _ = select.select([self._fd], [], [], timeout_s)
        if ready:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._fd, _MOST):
                    pass
        return bool(ready)


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[Wakeups]:
    """Wakeups from a folder of leases."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(_FLAGS)
    if fd < 0:  # a user has 128 of them, usually
        yield Wakeups(None)
        return
    try:
        watched = libc.inotify_add_watch(fd, os.fsencode(folder), _CLOSE_WRITE)
        yield Wakeups(fd if watched >= 0 else None)
    finally:
        os.close(fd)


def send(lease: Path) -> None:
    """Wake those who wait, by opening and closing a lease of this process; its lock stays."""
    with contextlib.suppress(OSError):
        os.close(os.open(lease, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW))
