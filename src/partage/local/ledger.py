"""The ledger: who has what of this machine's cards, and who waits, in one SQLite file.

It has one rule: whoever decides does so in one transaction that nobody else shares (``BEGIN
IMMEDIATE``), and reads everything it decides from in there. A crash loses the transaction or keeps
it.

Whether those in it still live is not asked here but of the kernel (:mod:`partage.local.sweeping`).
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from partage.core import demands, grants
from partage.fence import locks
from partage.local import databases, entries, places, schema

_COLUMNS = (
    "token, seq, uid, name, boot_id, pid, started_ticks, priority, asked_at, demand, "
    "granted_at, grant_json"
)
_MOST_SEQ = 1 << 62
_STEP_MS = 500


class Ledger:
    """An open ledger: ``with ledger.opened(place) as book: with book.deciding(): ...``."""

    def __init__(self, place: places.Place, steps: Sequence[str]) -> None:
        self._place = place
        self._path = place.ledger
        self._steps = steps
        self._identity: tuple[int, int] | None = None  # of the file that is open
        self._connect()

    def renew(self) -> None:
        """Go on with the file that is there now: a damaged one may have been moved away.

        Whoever waits would else decide from the old one, beside those who came later.
        """
        with databases.explained(self._path):
            if self._identity is None or databases.identity(self._path) != self._identity:
                self._identity = None  # until another is open: that may fail, and be tried again
                self.close()
                self._connect()

    def close(self) -> None:
        """Let the file go."""
        databases.close(self._connection, self._place)

    @contextlib.contextmanager
    def deciding(self, patience_s: float = databases.BUSY_S) -> Iterator[None]:
        """Nobody else decides meanwhile; what was written is there afterwards, or nothing is.

        Those who decide are waited for. It is an error if none of them gets on for so long, by
        which one who hangs is told from many who come at the same time.
        """
        self.renew()
        with databases.explained(self._path), locks.unstopped():
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
        """Everybody who is in it, alive or not, in the order in which they came.

        A row that makes no sense is left out; the lease of whoever it was about says it better.
        """
        with databases.explained(self._path):
            return _all(self._connection)

    def one(self, token: str) -> entries.Entry | None:
        """One of them."""
        with databases.explained(self._path):
            rows = self._connection.execute(
                f"SELECT {_COLUMNS} FROM entries WHERE token = ?", [token]
            ).fetchall()
        return _entry(rows[0]) if rows else None

    def ahead_of(self, mine: entries.Entry) -> Iterator[entries.Entry]:
        """Those who wait and come before, alive or not, the next first."""
        with databases.explained(self._path):
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
        last = row[0] if row else 0
        if not isinstance(last, int) or not 0 <= last < _MOST_SEQ:
            raise databases.damaged(self._path, f"the last number is {last!r:.40}")
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
        there = [row[0] for row in self._connection.execute("SELECT token FROM entries")]
        for token in set(there) - set(tokens):
            self.remove(token)

    def fact(self, name: str) -> str | None:
        """Something that was found out once and is worth keeping."""
        with databases.explained(self._path):
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
        self._connection = databases.connected(self._place, self._steps)
        self._identity = databases.identity(self._path)

    def _begin(self, patience_s: float) -> None:
        """Wait for one's turn, in steps: while SQLite waits, it does not let Ctrl-C through."""
        until_s = time.monotonic() + databases.BUSY_S
        seen, seen_s = -1, 0.0
        self._connection.execute(f"PRAGMA busy_timeout = {_STEP_MS}")
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if databases.kind(error) != "BUSY":
                    raise
                now_s, changes = time.monotonic(), databases.changes(self._connection)
                if changes != seen:
                    seen, seen_s = changes, now_s
                if now_s >= min(until_s, seen_s + patience_s):
                    raise
            else:
                return

    def _check_version(self) -> None:
        """Another Partage may have made it a newer one since it was opened."""
        version = databases.version(self._connection)
        if version > len(self._steps):
            raise databases.newer(self._path, version, len(self._steps))


@contextlib.contextmanager
def opened(place: places.Place, steps: Sequence[str] = schema.STEPS) -> Iterator[Ledger]:
    """The ledger of a place, made or brought up to date if need be."""
    with databases.explained(place.ledger):
        book = Ledger(place, steps)
    try:
        yield book
    finally:
        book.close()


def rows(place: places.Place) -> list[entries.Entry]:
    """Everybody who is in it, for those who only look: nothing is made or changed."""
    with databases.read_only(place) as connection:
        return _all(connection)


def damage(place: places.Place) -> str:
    """What SQLite finds wrong in the file; empty if nothing is."""
    with databases.read_only(place) as connection:
        said = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        if said == "ok":
            _all(connection)  # another table may be there, or none
    return "" if said == "ok" else said


def _all(connection: sqlite3.Connection) -> list[entries.Entry]:
    found = connection.execute(f"SELECT {_COLUMNS} FROM entries ORDER BY seq")
    return [entry for row in found if (entry := _entry(row)) is not None]


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
