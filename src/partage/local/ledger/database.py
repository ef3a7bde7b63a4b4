"""The database under the ledger: a SQLite file that is made, opened, brought up to date and closed.

WAL lets people look while somebody decides. ``synchronous=NORMAL`` may lose the last commits when
the power fails, and everybody in them with it. A file of a newer Partage is refused and left as it
is. What SQLite and the disk complain about is told in words for people (:func:`explained`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from partage.core import errors
from partage.fence.store import locks
from partage.local.ledger import schema
from partage.local.state import disk_problems, location

BUSY_S = 60.0  # how long a process waits for others before it gives up
_RETRY_S = 0.02
_LEAST_BYTES = 1 << 16  # with less than this, no file of SQLite's can be made
_LEAST_FILES = 32  # that a process may have open; Partage itself needs about a dozen
_SHARED_FIRST, _SHARED_BYTES = 0x40000002, 510  # what readers of a SQLite file lock


class Unwritable(disk_problems.Unusable):
    """Nothing can be written just now, but it may work later: a full disk, for example."""


class Busy(Unwritable):
    """Others used the ledger all the time."""


def connected(state: location.StateFolder, steps: Sequence[str]) -> sqlite3.Connection:
    """A connection to the file, made or brought up to date if need be."""
    _touch(state)
    connection = sqlite3.connect(state.ledger, timeout=BUSY_S, isolation_level=None)
    connection.text_factory = _text
    try:
        _prepare(connection, state.ledger, steps)
    except BaseException:
        close(connection, state)
        raise
    return connection


@contextlib.contextmanager
def read_only(state: location.StateFolder) -> Iterator[sqlite3.Connection]:
    """A connection to the file as it is: nothing is made, and nothing can be changed."""
    path, supported = state.ledger, len(schema.STEPS)
    with explained(path):
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        connection.text_factory = _text
        try:
            actual = version(connection)
            if actual != supported:
                raise newer(path, actual, supported) if actual > supported else _older(path)
            yield connection
        finally:
            close(connection, state)


def close(connection: sqlite3.Connection, state: location.StateFolder) -> None:
    """The last to close a ledger removes its companions (``-wal``, ``-shm``), if they may.

    In a shared folder root must not. The files are root's since `partage setup`: if they were a
    member's, kernels that protect files in sticky folders (``fs.protected_regular``) would keep all
    other members from opening them. A lock on SQLite's shared bytes says that somebody is still
    there.
    """
    fd = -1
    if state.shared and os.geteuid() == 0:
        with contextlib.suppress(OSError):
            fd = os.open(state.ledger, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
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
        name = "FULL" if _is_full(path) else kind(error)
        if name == "CANTOPEN" and _file_limit() < _LEAST_FILES:
            raise _too_few_files(path) from error
        what, remedy = _TEXTS.get(name, _OTHERWISE)
        raised = _PASSING.get(name, disk_problems.Unusable)
        raise raised(
            f"the ledger {path} {what} ({error})", remedy=remedy, ask_doctor=name not in _CLEAR
        ) from error
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise _too_few_files(path) from error
        raised = Unwritable if passing(error) else disk_problems.Unusable
        raise raised(
            f"{error.filename or path}: {error.strerror or error}; nothing was granted or changed",
            remedy=_DISK,
            ask_doctor=True,
        ) from error


def passing(error: OSError) -> bool:
    """Whether a disk that does not let one write may do so later."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def identity(path: Path) -> tuple[int, int] | None:
    """Which file it is, whatever it is called; None if it does not exist."""
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


def newer(path: Path, actual: int, supported: int) -> errors.LedgerError:
    """The error for a file that another Partage has made."""
    return errors.LedgerError(
        f"the ledger {path} has version {actual}, and this Partage supports up to {supported}",
        instead="use the newer Partage of this machine, or upgrade this one",
    )


def damaged(path: Path, how: str) -> errors.LedgerError:
    """The error for a file in which somebody has written what is not written here."""
    what, remedy = _TEXTS["CORRUPT"]
    return errors.LedgerError(f"the ledger {path} {what} ({how})", instead=remedy)


def _too_few_files(path: Path) -> errors.LedgerError:
    return errors.LedgerError(
        f"{path} cannot be used: this process may not have more than {_file_limit()} files open",
        instead="raise the limit: `ulimit -n 1024`",
    )


def _file_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


_MOVE = "let its owner, or root, move it away: the leases beside it say what runs"
_DISK = "its folder must be writable for you, and its disk neither full nor read-only"
_TEXTS = {
    "FULL": (
        "cannot be written: the disk is full; nothing was granted or changed",
        "make room on its disk, and try again",
    ),
    "READONLY": ("cannot be written; nothing was granted or changed", _DISK),
    "CANTOPEN": ("cannot be opened; nothing was granted or changed", _DISK),
    "BUSY": (
        "was in use by others all the time",
        "try again; `partage ps` shows who runs and waits",
    ),
    "IOERR": ("cannot be read or written", f"if its disk has no errors, {_MOVE}"),
    "CORRUPT": ("is damaged", _MOVE),
    **dict.fromkeys(
        ("NOTADB", "ERROR"),  # no database, or one without our tables
        ("is not a ledger", _MOVE),
    ),
}
_CLEAR = ("FULL", "BUSY", "IOERR", "CORRUPT", "NOTADB", "ERROR")  # the doctor knows no more
_PASSING: dict[str, type[Unwritable]] = {
    **dict.fromkeys(("FULL", "READONLY", "CANTOPEN", "IOERR"), Unwritable),
    "BUSY": Busy,
}
_OTHERWISE = ("does not answer", _DISK)


def _text(content: bytes) -> str:
    """Bytes that are not text are not believed, but have to be read to be put right."""
    return content.decode(errors="replace")


def _is_full(path: Path) -> bool:
    """SQLite says so itself only where it writes rows."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LEAST_BYTES


def _touch(state: location.StateFolder) -> None:
    """SQLite would make it with the mode of a umask, and its companions with the mode it has."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(state.ledger, flags, 0o600)
    except FileExistsError:
        return
    if state.shared:
        os.fchown(fd, -1, state.gid)
    os.fchmod(fd, state.file_mode)
    os.close(fd)


def _prepare(connection: sqlite3.Connection, path: Path, steps: Sequence[str]) -> None:
    actual = version(connection)
    if actual > len(steps):
        raise newer(path, actual, len(steps))
    connection.execute("PRAGMA synchronous = NORMAL")
    if actual < len(steps):
        _use_wal(connection)
        _upgrade(connection, steps)


def _use_wal(connection: sqlite3.Connection) -> None:
    """SQLite does not wait here for others who make the same ledger at the same moment."""
    until_s = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if kind(error) != "BUSY" or time.monotonic() >= until_s:
                raise
            time.sleep(_RETRY_S)
        else:
            return


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
        f"the ledger {path} is of an older version",
        instead="the next `partage run` brings it up to date",
    )
