"""Locks that the kernel gives back when their holder dies, however it dies.

Two kinds. A process of a tenant owns slot *i* of its region by an *open file description lock* on
byte *i*: it needs no pid (which means little across containers), and nothing has to be repaired
after ``kill -9``. The node side never takes one; it only asks whether the lock is held. And changes
under one root are made one after another, under ``flock`` on its ``lock`` file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

# struct flock: l_type, l_whence, l_start, l_len, l_pid; `0q` pads it to its full size.
_FLOCK = struct.Struct("hhqqi0q")
_STOPPING = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)  # what a terminal sends


def held(fd: int, byte: int, *, count: int = 1) -> bool:
    """Whether another open file has a lock on one of these bytes; read access is enough to ask."""
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, count, 0)
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, query)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def written(fd: int, byte: int) -> bool:
    """Whether somebody who may write the file has a lock on a byte.

    Those who may only read the file can lock it too, for reading; such a lock does not count.
    """
    query = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, byte, 1, 0)
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, query)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def take(fd: int, byte: int) -> bool:
    """Take the lock on a byte, as a process of a tenant does; False if somebody else has it."""
    lock = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)
    except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as POSIX leaves open
        return False
    return True


def share(fd: int, byte: int, count: int) -> bool:
    """Lock bytes for reading; False if somebody writes them."""
    lock = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, byte, count, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)
    except (BlockingIOError, PermissionError):
        return False
    return True


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock of a file or folder that exists; waits until it is free."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        with unstopped():
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def unstopped() -> Iterator[None]:
    """Ctrl-Z waits: a process that is stopped with a lock stops all that need it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
