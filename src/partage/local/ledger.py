"""The ledger: who has what of this machine's cards, and who waits, in one SQLite file.

It has one rule: whoever decides does so in one transaction that nobody else shares (``BEGIN
IMMEDIATE``), and reads everything it decides from in there. A crash loses the transaction or keeps
it. WAL lets ``partage ps`` read meanwhile. ``synchronous=NORMAL`` may lose the last commits when
the power fails, and everybody in the ledger with them.

Whether those in it still live is not asked here but of the kernel (:mod:`partage.local.sweeping`).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from partage.core import demands, errors, grants
from partage.fence import locks
from partage.local import entries, places, schema

_BUSY_S = 60.0
_LEAST_BYTES = 1 << 16  # with less than this, no file of SQLite's can be made
_SHARED_FIRST, _SHARED_BYTES = 0x40000002, 510  # what readers of a SQLite file lock
_COLUMNS = (
    "token, seq, uid, name, boot_id, pid, started_ticks, priority, asked_at, demand, "
    "granted_at, grant_json"
)


class Ledger:
    """An open ledger: ``with ledger.opened(place) as book: with book.deciding(): ...``."""

    def __init__(self, place: places.Place, steps: Sequence[str]) -> None:
        self._place = place
        self._path = place.ledger
        self._steps = steps
        self._connect()

    def renew(self) -> None:
        """Go on with the file that is there now: a damaged one may have been moved away.

        Whoever waits would else decide from the old one, beside those who came later.
        """
        with explained(self._path):
            if _identity(self._path) != self._identity:
                self.close()
                self._connect()

    def close(self) -> None:
        """Let the file go."""
        _close(self._connection, self._place)

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        """Nobody else decides meanwhile; what was written is there afterwards, or nothing is."""
        self.renew()
        with explained(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._check_version()
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def all(self) -> list[entries.Entry]:
        """Everybody who is in it, alive or not, in the order in which they came.

        A row that makes no sense is left out; the lease of whoever it was about says it better.
        """
        with explained(self._path):
            return _all(self._connection)

    def one(self, token: str) -> entries.Entry | None:
        """One of them."""
        with explained(self._path):
            rows = self._connection.execute(
                f"SELECT {_COLUMNS} FROM entries WHERE token = ?", [token]
            ).fetchall()
        return _entry(rows[0]) if rows else None

    def ahead_of(self, mine: entries.Entry) -> Iterator[entries.Entry]:
        """Those who wait and come before, alive or not, the next first."""
        with explained(self._path):
            rows = self._connection.execute(
                f"SELECT {_COLUMNS} FROM entries WHERE grant_json IS NULL AND "
                "(priority > ?1 OR (priority = ?1 AND seq < ?2)) ORDER BY priority DESC, seq",
                [mine.priority, mine.seq],
            ).fetchall()
        return (entry for row in rows if (entry := _entry(row)) is not None)

    def next_seq(self) -> int:
        """The number of the next who comes; those of the gone are not used again."""
        row = self._connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'entries'"
        ).fetchone()
        return 1 + (row[0] if row else 0)

    def add(self, entry: entries.Entry) -> None:
        """Write a new entry, with the number it has."""
        values = [
            *(entry.token, entry.seq, entry.uid, entry.name),
            *(entry.boot_id, entry.pid, entry.started_ticks, entry.priority),
            *(entry.asked_at, msgspec.json.encode(entry.demand)),
            *(entry.granted_at, _encoded(entry.grant)),
        ]
        marks = ", ".join("?" * len(values))
        self._connection.execute(f"INSERT INTO entries ({_COLUMNS}) VALUES ({marks})", values)

    def update(self, entry: entries.Entry) -> None:
        """Write what somebody asks for and was granted, in place of what is there."""
        self._connection.execute(
            "UPDATE entries SET demand = ?, grant_json = ?, granted_at = ? WHERE token = ?",
            [
                *(msgspec.json.encode(entry.demand), _encoded(entry.grant)),
                *(entry.granted_at, entry.token),
            ],
        )

    def remove(self, token: str) -> None:
        """Forget somebody."""
        self._connection.execute("DELETE FROM entries WHERE token = ?", [token])

    def keep_only(self, tokens: Collection[str]) -> None:
        """Forget all others, whatever their rows say."""
        there = [row[0] for row in self._connection.execute("SELECT token FROM entries")]
        for token in set(there) - set(tokens):
            self.remove(token)

    def fact(self, name: str) -> str | None:
        """Something that was found out once and is worth keeping."""
        with explained(self._path):
            row = self._connection.execute(
                "SELECT value FROM facts WHERE name = ?", [name]
            ).fetchone()
        return None if row is None else str(row[0])

    def set_fact(self, name: str, value: str) -> None:
        """Keep it."""
        self._connection.execute(
            "INSERT INTO facts VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            [name, value],
        )

    def _connect(self) -> None:
        self._connection = _connected(self._place, self._steps)
        self._identity = _identity(self._path)

    def _check_version(self) -> None:
        """Another Partage may have made it a newer one since it was opened."""
        version = _version(self._connection)
        if version > len(self._steps):
            raise _newer(self._path, version, len(self._steps))


@contextlib.contextmanager
def opened(place: places.Place, steps: Sequence[str] = schema.STEPS) -> Iterator[Ledger]:
    """The ledger of a place, made or brought up to date if need be."""
    with explained(place.ledger):
        book = Ledger(place, steps)
    try:
        yield book
    finally:
        book.close()


def rows(place: places.Place) -> list[entries.Entry]:
    """Everybody who is in it, for those who only look: nothing is made or changed."""
    with _read_only(place) as connection:
        return _all(connection)


def damage(place: places.Place) -> str:
    """What SQLite finds wrong in the file; empty if nothing is."""
    with _read_only(place) as connection:
        said = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "" if said == "ok" else said


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors, and the disk's, as ones for people."""
    try:
        yield
    except sqlite3.Error as error:
        kind = "FULL" if _is_full(path) else _kind(error)
        what, instead = _TEXTS.get(kind, _OTHERWISE)
        raise errors.LedgerError(f"the ledger {path} {what} ({error})", instead=instead) from error
    except OSError as error:
        raise errors.LedgerError(
            f"{error.filename or path}: {error.strerror or error}; nothing was granted or changed",
            instead="see `partage doctor`",
        ) from error


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
    "BUSY": ("was in use by others all the time", "try again; `partage doctor` shows who waits"),
    "IOERR": ("cannot be read or written", "see the kernel's messages about its disk"),
    "CORRUPT": (
        "is damaged",
        "move it away: who runs is found again by the leases beside it",
    ),
    "NOTADB": (
        "is no ledger",
        "move it away: who runs is found again by the leases beside it",
    ),
}
_OTHERWISE = ("does not answer", "see `partage doctor`")


def _kind(error: sqlite3.Error) -> str:
    """The name of SQLite's error, ``READONLY_DIRECTORY`` and its like without the particulars."""
    name: str = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    return name.split("_")[1]


def _is_full(path: Path) -> bool:
    """SQLite says so itself only where it writes rows."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LEAST_BYTES


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _connected(place: places.Place, steps: Sequence[str]) -> sqlite3.Connection:
    _touch(place)
    connection = sqlite3.connect(place.ledger, timeout=_BUSY_S, isolation_level=None)
    try:
        _prepare(connection, place.ledger, steps)
    except BaseException:
        _close(connection, place)
        raise
    return connection


@contextlib.contextmanager
def _read_only(place: places.Place) -> Iterator[sqlite3.Connection]:
    path, known = place.ledger, len(schema.STEPS)
    with explained(path):
        connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
        try:
            version = _version(connection)
            if version != known:
                raise _newer(path, version, known) if version > known else _older(path)
            yield connection
        finally:
            _close(connection, place)


def _all(connection: sqlite3.Connection) -> list[entries.Entry]:
    found = connection.execute(f"SELECT {_COLUMNS} FROM entries ORDER BY seq")
    return [entry for row in found if (entry := _entry(row)) is not None]


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


def _close(connection: sqlite3.Connection, place: places.Place) -> None:
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


def _prepare(connection: sqlite3.Connection, path: Path, steps: Sequence[str]) -> None:
    version = _version(connection)
    if version > len(steps):
        raise _newer(path, version, len(steps))
    connection.execute("PRAGMA synchronous = NORMAL")
    if version < len(steps):
        connection.execute("PRAGMA journal_mode = WAL")
        _upgrade(connection, steps)


def _upgrade(connection: sqlite3.Connection, steps: Sequence[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in steps[_version(connection) :]:  # somebody else may have made it meanwhile
            for statement in step.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _newer(path: Path, version: int, known: int) -> errors.LedgerError:
    return errors.LedgerError(
        f"the ledger {path} is of version {version}, and this Partage knows {known}",
        instead="use the newer Partage of this machine, or upgrade this one",
    )


def _older(path: Path) -> errors.LedgerError:
    return errors.LedgerError(
        f"the ledger {path} is of an older version", instead="the next `partage run` renews it"
    )


def _encoded(grant: grants.Grant | None) -> bytes | None:
    return None if grant is None else msgspec.json.encode(grant)


def _entry(row: tuple[Any, ...]) -> entries.Entry | None:
    (token, seq, uid, name, boot_id, pid, ticks, priority, asked_at, demand, granted_at, grant) = (
        row
    )
    with contextlib.suppress(msgspec.MsgspecError, ValueError):
        return entries.Entry(
            token=token,
            seq=seq,
            uid=uid,
            name=name,
            boot_id=boot_id,
            pid=pid,
            started_ticks=ticks,
            priority=priority,
            asked_at=asked_at,
            demand=msgspec.json.decode(demand, type=demands.PodDemand),
            granted_at=granted_at,
            grant=None if grant is None else msgspec.json.decode(grant, type=grants.Grant),
        )
    return None
