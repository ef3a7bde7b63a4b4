"""Leases: files whose lock says that somebody still has, or still waits for, a grant.

A lease is made by ``partage run`` and locked. The program it becomes inherits the open file and
with it the lock (an *open file description* lock), as do its children, and the kernel drops it when
the last of them has ended, however it ended. Others need only read the file to ask.

Programs that close all files they did not open would drop the lock too early, so the program itself
counts as well, by its process id and the moment it started; and a child that lives on without the
lock counts as long as the fence knows it (:mod:`partage.local.ledger.liveness`).

In the file is the entry as its owner wrote it. In a shared state folder only the owner can write or
remove it, so a row of the ledger that another member changed or deleted is put right from here:
nobody can release somebody else's grant.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

import msgspec

from partage.core import errors
from partage.fence.store import locks
from partage.local.state import entries

# Above the descriptors that scripts choose for themselves, `exec 3<>file`; the second one where a
# user may not have so many open.
_HIGH, _LESS_HIGH = 100, 10
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LARGEST = 1 << 18  # bytes; whatever is larger was not written here


class Lease:
    """A lease of this process."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.entry: entries.Entry | None = None  # as it was written last

    @property
    def token(self) -> str:
        """Its name."""
        return self.path.name

    def write(self, entry: entries.Entry) -> None:
        """Write the entry; readers see the old one or the new one, never a part."""
        write(self.fd, entry)
        self.entry = entry

    def inherit(self) -> None:
        """Let the program have it."""
        os.set_inheritable(self.fd, True)

    def end(self) -> None:
        """Give it up."""
        with contextlib.suppress(OSError):  # on a disk that is read-only by now it is litter
            self.path.unlink()
        os.close(self.fd)


class LeaseFile(msgspec.Struct, frozen=True):
    """A lease as others see it."""

    locked: bool
    uid: int  # of its owner
    entry: entries.Entry | None  # None: nothing readable is there


def create(folder: Path) -> Lease:
    """A new lease, locked."""
    path = folder / os.urandom(8).hex()
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    low = os.open(path, flags, 0o600)  # a user who may read it could keep us from the lock
    try:
        fd = _high(low)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(low)
    locks.take(fd, 0)
    os.fchmod(fd, 0o644)  # whatever the umask is: others have to see the lock
    return Lease(path, fd)


def find(folder: Path, token: str) -> LeaseFile | None:
    """A lease by its token; None if there is none."""
    try:
        # Not by `/`: this is asked of everybody at each decision.
        fd = os.open(f"{folder}/{token}", _READ)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        return LeaseFile(locks.written(fd, 0), status.st_uid, _entry(fd, token))
    finally:
        os.close(fd)


def tokens(folder: Path) -> list[str]:
    """All that are there, the ended ones too."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError as error:
        raise errors.LedgerError(
            f"{folder} does not exist any more: the state folder was moved or removed",
            instead="move it back, or start `partage` again, which makes a new one",
        ) from error
    return [name for name in names if entries.TOKEN.fullmatch(name)]


def remove(folder: Path, token: str) -> None:
    """Remove what an ended lease left, if this user may."""
    with contextlib.suppress(OSError):
        (folder / token).unlink()


def rewrite(folder: Path, entry: entries.Entry) -> None:
    """Write another entry into a lease that a program still holds."""
    fd = os.open(folder / entry.token, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        write(fd, entry)
    finally:
        os.close(fd)


def write(fd: int, entry: entries.Entry) -> None:
    """In one piece, with blanks over the rest of a longer one: a kill leaves the old or the new."""
    content = msgspec.json.encode(entry)
    os.pwrite(fd, content.ljust(min(os.fstat(fd).st_size, _LARGEST)), 0)


def _high(low: int) -> int:
    with contextlib.suppress(OSError):
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LESS_HIGH)
    except OSError as error:
        if error.errno == errno.EINVAL:  # how the kernel says that the limit is lower still
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from error
        raise


def _entry(fd: int, token: str) -> entries.Entry | None:
    try:
        entry = msgspec.json.decode(os.pread(fd, _LARGEST, 0), type=entries.Entry)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return entry if entry.token == token else None
