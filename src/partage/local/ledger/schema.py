"""The ledger's tables, and how those of an older Partage become those of this one.

A step is added at the end, and none is ever changed: a ledger's ``user_version`` is the number of
steps that were made in it. All of them are made in one transaction, so that a ledger is of one
version or of another, even if a process is killed meanwhile.
"""

from __future__ import annotations

STEPS = (
    """
    CREATE TABLE entries (
        seq        INTEGER PRIMARY KEY AUTOINCREMENT,
        token      TEXT    NOT NULL UNIQUE,
        uid        INTEGER NOT NULL,
        name       TEXT    NOT NULL,
        boot_id    TEXT    NOT NULL,
        pid        INTEGER NOT NULL,
        started_ticks INTEGER NOT NULL,
        priority   INTEGER NOT NULL,
        asked_at   REAL    NOT NULL,
        demand     BLOB    NOT NULL,
        granted_at REAL,
        grant_json BLOB,
        CHECK ((granted_at IS NULL) = (grant_json IS NULL))
    ) STRICT;
    CREATE TABLE facts (
        name  TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    """,
)
