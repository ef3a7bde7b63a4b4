"""The ledger: the grants of this machine, and the requests that wait, in one SQLite file.

It has one rule: a process decides in one transaction that no other process shares (``BEGIN
IMMEDIATE``), and reads everything it decides from in there. A crash loses the transaction or keeps
it.

Whether those in it still live is not asked here but of the kernel
(:mod:`partage.local.ledger.liveness`).
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from partage.core import demands, grants
from partage.fence.store import locks
from partage.local.ledger import database, schema
from partage.local.state import entries, location

_COLUMNS = (
    "token, seq, uid, name, boot_id, pid, started_ticks, priority, asked_at, demand, "
    "granted_at, grant_json"
)
_MOST_SEQ = 1 << 62
_STEP_MS = 500


class Ledger:
    """An open ledger: ``with ledger.opened(state) as book: with book.deciding(): ...``."""

    def __init__(self, state: location.StateFolder, steps: Sequence[str]) -> None:
        self._state = state
        self._path = state.ledger
        self._steps = steps
        self._identity: tuple[int, int] | None = None  # of the file that is open
        self._connect()

    def renew(self) -> None:
        """Go on with the file that is there now: a damaged one may have been moved away.

        Otherwise a process that waits would decide from the old file, and a later one from the new.
        """
        with database.explained(self._path):
            if self._identity is None or database.identity(self._path) != self._identity:
                self._identity = None  # until another is open: that may fail, and be tried again
                self.close()
                self._connect()

    def close(self) -> None:
        """Let the file go."""
        database.close(self._connection, self._state)

    @contextlib.contextmanager
    def deciding(self, patience_s: float = database.BUSY_S) -> Iterator[None]:
        """Nobody else decides meanwhile; what was written is there afterwards, or nothing is.

        Others who decide are waited for. It is an error if none of them gets on for so long: that
        tells one process that hangs from many that come at the same time.
        """
        self.renew()
        with database.explained(self._path), locks.unstopped():
            self._begin(patience_s)
            try:
                self._check_version()
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def all(self) -> list[entries.Entry]:
        """All entries, alive or not, in the order in which they came.

        A row that makes no sense is left out; the lease of its owner says it better.
        """
        with database.explained(self._path):
            return _all(self._connection)

    def entry(self, token: str) -> entries.Entry | None:
        """The entry with a token."""
        with database.explained(self._path):
            rows = self._connection.execute(
                f"SELECT {_COLUMNS} FROM entries WHERE token = ?", [token]
            ).fetchall()
        return _entry(rows[0]) if rows else None

    def ahead_of(self, mine: entries.Entry) -> Iterator[entries.Entry]:
        """Those who wait and come before, alive or not, the next first."""
        with database.explained(self._path):
            rows = self._connection.execute(
                f"SELECT {_COLUMNS} FROM entries WHERE grant_json IS NULL AND "
                "(priority > ?1 OR (priority = ?1 AND seq < ?2)) ORDER BY priority DESC, seq",
                [mine.priority, mine.seq],
            ).fetchall()
        return (entry for row in rows if (entry := _entry(row)) is not None)

    def next_seq(self) -> int:
        """The number of the next entry; the numbers of those that are gone are not used again."""
        row = self._connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'entries'"
        ).fetchone()
        last = row[0] if row else 0
        if not isinstance(last, int) or not 0 <= last < _MOST_SEQ:
            raise database.damaged(self._path, f"the last number is {last!r:.40}")
        return 1 + last

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
        present = [row[0] for row in self._connection.execute("SELECT token FROM entries")]
        for token in set(present) - set(tokens):
            self.remove(token)

    def fact(self, name: str) -> str | None:
        """Something that was found out once and is worth keeping."""
        with database.explained(self._path):
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
        self._connection = database.connected(self._state, self._steps)
        self._identity = database.identity(self._path)

    def _begin(self, patience_s: float) -> None:
        """Wait for our turn, in steps: while SQLite waits, it does not let Ctrl-C through."""
        until_s = time.monotonic() + database.BUSY_S
        seen, seen_s = -1, 0.0
        self._connection.execute(f"PRAGMA busy_timeout = {_STEP_MS}")
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if database.kind(error) != "BUSY":
                    raise
                now_s, changes = time.monotonic(), database.changes(self._connection)
                if changes != seen:
                    seen, seen_s = changes, now_s
                if now_s >= min(until_s, seen_s + patience_s):
                    raise
            else:
                return

    def _check_version(self) -> None:
        """Another Partage may have made it a newer one since it was opened."""
        version = database.version(self._connection)
        if version > len(self._steps):
            raise database.newer(self._path, version, len(self._steps))


@contextlib.contextmanager
def opened(state: location.StateFolder, steps: Sequence[str] = schema.STEPS) -> Iterator[Ledger]:
    """The ledger of a state folder, made or brought up to date if need be."""
    with database.explained(state.ledger):
        book = Ledger(state, steps)
    try:
        yield book
    finally:
        book.close()


def rows(state: location.StateFolder) -> list[entries.Entry]:
    """All entries, for those who only look: nothing is made or changed."""
    with database.read_only(state) as connection:
        return _all(connection)


def damage(state: location.StateFolder) -> str:
    """What SQLite finds wrong in the file; empty if nothing is."""
    with database.read_only(state) as connection:
        verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        if verdict == "ok":
            _all(connection)  # another table may be there, or none
    return "" if verdict == "ok" else verdict


def _all(connection: sqlite3.Connection) -> list[entries.Entry]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM entries ORDER BY seq")
    return [entry for row in rows if (entry := _entry(row)) is not None]


def _encoded(grant: grants.Grant | None) -> bytes | None:
    return None if grant is None else msgspec.json.encode(grant)


def _entry(row: tuple[Any, ...]) -> entries.Entry | None:
    """What a row says; members of a group may have written anything into it."""
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    grant = fields.pop("grant_json")
    with contextlib.suppress(msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        fields["demand"] = msgspec.json.decode(fields["demand"], type=demands.PodDemand)
        fields["grant"] = None if grant is None else msgspec.json.decode(grant, type=grants.Grant)
        return msgspec.convert(fields, entries.Entry)
    return None
