"""The database under the ledger: a SQLite file that is made, opened, brought up to date and closed.

WAL lets people look while somebody decides. ``synchronous=NORMAL`` may lose the last commits when
the power fails, and everybody in them with it. A file of a newer Partage is refused and left as it
is. What SQLite and the disk complain about is told in words for people (:func:`explained`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from partage.core import errors
from partage.fence import locks
from partage.local import places, schema

BUSY_S = 60.0  # before one gives up waiting for others
_LEAST_BYTES = 1 << 16  # with less than this, no file of SQLite's can be made
_SHARED_FIRST, _SHARED_BYTES = 0x40000002, 510  # what readers of a SQLite file lock


class Unwritable(errors.LedgerError):
    """Nothing can be written just now, and who has time may try again: a full disk, say."""


class Busy(Unwritable):
    """Others had the ledger all the time."""


def connected(place: places.Place, steps: Sequence[str]) -> sqlite3.Connection:
    """A connection to the file, made or brought up to date if need be."""
    _touch(place)
    connection = sqlite3.connect(place.ledger, timeout=BUSY_S, isolation_level=None)
    connection.text_factory = _text
    try:
        _prepare(connection, place.ledger, steps)
    except BaseException:
        close(connection, place)
        raise
    return connection


@contextlib.contextmanager
def read_only(place: places.Place) -> Iterator[sqlite3.Connection]:
    """A connection to the file as it is: nothing is made, and nothing can be changed."""
    path, known = place.ledger, len(schema.STEPS)
    with explained(path):
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        connection.text_factory = _text
        try:
            found = version(connection)
            if found != known:
                raise newer(path, found, known) if found > known else _older(path)
            yield connection
        finally:
            close(connection, place)


def close(connection: sqlite3.Connection, place: places.Place) -> None:
    """The last to close a ledger removes its companions (``-wal``, ``-shm``), if he may.

    In a shared place root must not. They are root's since `partage setup`: were they a member's,
    kernels that protect files in sticky folders (``fs.protected_regular``) would keep all other
    members from opening them. A lock on SQLite's shared bytes says that somebody is still there.
    """
    fd = -1
    if place.shared and os.geteuid() == 0:
        with contextlib.suppress(OSError):
            fd = os.open(place.ledger, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            locks.share(fd, _SHARED_FIRST, _SHARED_BYTES)
    connection.close()
    if fd >= 0:
        os.close(fd)  # not before: that drops SQLite's own locks on the file


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors, and the disk's, as ones for people."""
    try:
        yield
    except sqlite3.Error as error:
        named = "FULL" if _is_full(path) else kind(error)
        what, instead = _TEXTS.get(named, _OTHERWISE)
        raised = _PASSING.get(named, errors.LedgerError)
        raise raised(f"the ledger {path} {what} ({error})", instead=instead) from error
    except OSError as error:
        raised = Unwritable if passing(error) else errors.LedgerError
        raise raised(
            f"{error.filename or path}: {error.strerror or error}; nothing was granted or changed",
            instead="see `partage doctor`",
        ) from error


def passing(error: OSError) -> bool:
    """Whether a disk that does not let one write may do so later."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def identity(path: Path) -> tuple[int, int] | None:
    """Which file it is, whatever it is called; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def version(connection: sqlite3.Connection) -> int:
    """How many steps were made in it."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def changes(connection: sqlite3.Connection) -> int:
    """A number that is another one whenever somebody else has changed the file."""
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def kind(error: sqlite3.Error) -> str:
    """The name of SQLite's error, ``READONLY_DIRECTORY`` and its like without the particulars."""
    name: str = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    return name.split("_")[1]


def newer(path: Path, found: int, known: int) -> errors.LedgerError:
    """The error for a file that another Partage has made."""
    return errors.LedgerError(
        f"the ledger {path} is of version {found}, and this Partage knows {known}",
        instead="use the newer Partage of this machine, or upgrade this one",
    )


def damaged(path: Path, how: str) -> errors.LedgerError:
    """The error for a file in which somebody has written what is not written here."""
    what, instead = _TEXTS["CORRUPT"]
    return errors.LedgerError(f"the ledger {path} {what} ({how})", instead=instead)


_MOVE = "let its owner, or root, move it away: who runs is found again by the leases beside it"
_TEXTS = {
    "FULL": (
        "cannot be written: the disk is full; nothing was granted or changed",
        "make room on its disk, and try again",
    ),
    "READONLY": (
        "cannot be written; nothing was granted or changed",
        "see `partage doctor`: its folder must be writable for you, and its disk not read-only",
    ),
    "CANTOPEN": (
        "cannot be opened; nothing was granted or changed",
        "see `partage doctor`: its folder must be writable for you, and its disk not read-only",
    ),
    "BUSY": (
        "was in use by others all the time",
        "try again; `partage ps` shows who runs and waits",
    ),
    "IOERR": ("cannot be read or written", f"if its disk is well, {_MOVE}"),
    "CORRUPT": ("is damaged", _MOVE),
    **dict.fromkeys(
        ("NOTADB", "ERROR"),  # no database, or one without our tables
        ("is no ledger", _MOVE),
    ),
}
_PASSING: dict[str, type[Unwritable]] = {
    **dict.fromkeys(("FULL", "READONLY", "CANTOPEN", "IOERR"), Unwritable),
    "BUSY": Busy,
}
_OTHERWISE = ("does not answer", "see `partage doctor`")


def _text(content: bytes) -> str:
    """What is no text is not believed, but has to be read to be put right."""
    return content.decode(errors="replace")


def _is_full(path: Path) -> bool:
    """SQLite says so itself only where it writes rows."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LEAST_BYTES


def _touch(place: places.Place) -> None:
    """SQLite would make it with the mode of a umask, and its companions with the mode it has."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(place.ledger, flags, 0o600)
    except FileExistsError:
        return
    if place.shared:
        os.fchown(fd, -1, place.gid)
    os.fchmod(fd, place.file_mode)
    os.close(fd)


def _prepare(connection: sqlite3.Connection, path: Path, steps: Sequence[str]) -> None:
    found = version(connection)
    if found > len(steps):
        raise newer(path, found, len(steps))
    connection.execute("PRAGMA synchronous = NORMAL")
    if found < len(steps):
        connection.execute("PRAGMA journal_mode = WAL")
        _upgrade(connection, steps)


def _upgrade(connection: sqlite3.Connection, steps: Sequence[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in steps[version(connection) :]:  # somebody else may have made it meanwhile
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _older(path: Path) -> errors.LedgerError:
    return errors.LedgerError(
        f"the ledger {path} is of an older version", instead="the next `partage run` renews it"
    )
