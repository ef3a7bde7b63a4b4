"""Rows that somebody wrote into the ledger's file: the leases are believed, and nobody crashes."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from tests.local import sites

ANYTHING = (
    "DROP TABLE entries;"
    "CREATE TABLE entries (seq, token, uid, name, boot_id, pid, started_ticks, priority, asked_at,"
    " demand, granted_at, grant_json);"
    "INSERT INTO entries VALUES"
    " ('x', 5, NULL, x'ff', 'b', 'c', 1e300, 'p', NULL, 'd', 'e', 1)"
)
HEALED = {
    "no text": "UPDATE entries SET name = CAST(x'ff' AS TEXT)",
    "no demand": "UPDATE entries SET demand = CAST('[' AS BLOB)",
    "no lease": "INSERT INTO entries SELECT 99, 'zzz', uid, name, boot_id, pid, started_ticks,"
    " priority, asked_at, demand, granted_at, grant_json FROM entries",
    "no number": "UPDATE sqlite_sequence SET seq = 'abc'",
    "no types": ANYTHING,
}
DAMAGED = {
    "last number": "UPDATE sqlite_sequence SET seq = 9223372036854775807",
    "no table": "DROP TABLE entries",
}


@pytest.mark.parametrize("change", HEALED.values(), ids=HEALED)
def test_a_row_that_makes_no_sense_is_put_right(site: sites.Site, change: str) -> None:
    """Whoever runs is still there, and others can start."""
    site.holding("--memory", "12GiB", "--card", 0, "--name", "honest")
    _write(site, change)

    assert site.names() == ["honest"]
    full = site.partage("run", "--no-wait", "--memory", "8GiB", "--card", 0, "--", "true")
    assert full.returncode == 75, full.stderr
    assert site.partage("run", "--memory", "1GiB", "--", "true").returncode == 0


@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED)
def test_a_ledger_that_cannot_go_on_says_what_to_do(site: sites.Site, change: str) -> None:
    """It is moved away, and running programs are found again by their leases."""
    site.holding("--memory", "12GiB", "--card", 0, "--name", "honest")
    _write(site, change)

    refused = site.partage("run", "--memory", "1GiB", "--", "true")
    assert refused.returncode == 1
    assert "move it away" in refused.stderr
    assert "Traceback" not in refused.stderr

    site.state().ledger.rename(site.folder / "damaged.db")
    full = site.partage("run", "--no-wait", "--memory", "8GiB", "--card", 0, "--", "true")
    assert full.returncode == 75, full.stderr


def _write(site: sites.Site, change: str) -> None:
    with contextlib.closing(sqlite3.connect(site.state().ledger)) as connection:
        connection.executescript(change)
