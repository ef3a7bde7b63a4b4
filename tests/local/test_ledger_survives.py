"""A full disk, a read-only one, other versions, a reboot, damage: clear errors, and no loss."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import sqlite3
import subprocess
import threading

import pytest

from partage.core import errors
from partage.local.ledger import database, ledger, liveness, schema
from partage.local.state import location
from tests import disks, leaving_out
from tests.local import sites

NEWER = (*schema.STEPS, "ALTER TABLE entries ADD COLUMN note TEXT NOT NULL DEFAULT ''")


def test_a_newer_partage_brings_the_ledger_up_to_date_and_loses_nobody(site: sites.Site) -> None:
    """Programs that run are still there afterwards, and have what they had."""
    site.holding("--memory", "4GiB", "--name", "old")
    with site.book() as book:
        before = book.all()

    with ledger.opened(site.state(), NEWER) as book:
        after = book.all()

    assert before == after
    assert [entry.name for entry in after] == ["old"]


def test_an_older_partage_leaves_a_newer_ledger_alone(site: sites.Site) -> None:
    """It says which version it knows, starts nothing, and changes nothing."""
    site.holding("--memory", "4GiB", "--name", "old")
    with ledger.opened(site.state(), NEWER) as book:
        before = book.all()

    refused = site.partage("run", "--memory", "1GiB", "--", "echo", "ran")

    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "has version 2, and this Partage supports up to 1" in refused.stderr
    assert "upgrade this one" in refused.stderr
    with ledger.opened(site.state(), NEWER) as book:
        assert book.all() == before


def test_one_who_waits_notices_that_the_ledger_became_newer(site: sites.Site) -> None:
    """The older Partage started it; it goes with a clear text, and writes no old rows."""
    holder = site.holding("--memory", "16GiB", "--cards", "2")
    waiter = site.run("--memory", "4GiB", "--name", "late", command=["echo", "ran"])
    sites.eventually(lambda: site.queued() == ["late"])
    with ledger.opened(site.state(), NEWER):
        holder.kill()
        out, err = waiter.communicate(timeout=sites.PATIENCE_S)

    assert waiter.returncode == 1
    assert out == ""
    assert "has version 2, and this Partage supports up to 1" in err


def test_two_make_the_same_ledger_at_once(tmp_path: pathlib.Path) -> None:
    """Ten first runs on a fresh machine: all of them start, in one ledger."""
    site = sites.Site(tmp_path)
    try:
        started = [site.run("--memory", "1GiB", command=["echo", "ran"]) for _ in range(10)]
        outputs = [process.communicate(timeout=sites.PATIENCE_S) for process in started]
    finally:
        site.end()

    assert [
        (out, process.returncode) for process, (out, _) in zip(started, outputs, strict=True)
    ] == [("ran\n", 0)] * 10, outputs


def test_a_ledger_that_somebody_makes_just_now_is_waited_for(tmp_path: pathlib.Path) -> None:
    """SQLite itself would not wait for one who writes into a file that is not in WAL mode yet."""
    state = location.opened(tmp_path / "state")
    first = sqlite3.connect(state.ledger, isolation_level=None, check_same_thread=False)
    first.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.2, first.execute, ["ROLLBACK"])
    release.start()
    with ledger.opened(state) as book:
        assert book.all() == []
    release.join()
    first.close()


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: pathlib.Path) -> None:
    """Nothing is started or granted; programs keep their shares; with room again all is well."""
    with disks.small(tmp_path / "disk") as disk:
        site = sites.Site(disk, state=str(tmp_path / "machine"))
        try:
            site.holding("--memory", "4GiB", "--name", "old")
            filler = disk / "filler"
            disks.fill(filler)

            refused = site.partage("run", "--memory", "1GiB", "--", "echo", "ran")

            assert refused.returncode == 1
            assert refused.stdout == ""
            assert "disk is full" in refused.stderr or "No space left" in refused.stderr
            assert "Traceback" not in refused.stderr
            assert site.names() == ["old"]
            filler.unlink()
            again = site.partage("run", "--memory", "1GiB", "--", "echo", "ran")
            assert (again.stdout, again.returncode) == ("ran\n", 0)
        finally:
            site.end()


def test_the_queue_can_be_left_while_the_disk_is_full(tmp_path: pathlib.Path) -> None:
    """The row stays until somebody can write again; nobody is held up by it."""
    with disks.small(tmp_path / "disk") as disk:
        site = sites.Site(disk, state=str(tmp_path / "machine"))
        try:
            site.holding("--memory", "16GiB", "--cards", "2", "--name", "holder")
            waiter = site.run("--memory", "1GiB", "--name", "waiter", command=["true"])
            sites.eventually(lambda: site.queued() == ["waiter"])
            disks.fill(disk / "filler")
            waiter.send_signal(signal.SIGINT)
            _, err = waiter.communicate(timeout=sites.PATIENCE_S)

            assert waiter.returncode == 130
            assert "Traceback" not in err
            assert site.names("waiting") == []
        finally:
            site.end()


def test_a_read_only_disk_is_told_and_can_still_be_looked_at(tmp_path: pathlib.Path) -> None:
    """Nothing is started; running programs are still seen, by their leases, with the problem."""
    site = sites.Site(tmp_path, state=str(tmp_path / "machine"))
    try:
        _try_read_only(site)
    finally:
        site.end()


def _try_read_only(site: sites.Site) -> None:
    site.holding("--memory", "4GiB", "--name", "old")

    refused = _read_only(site, "run --memory 1GiB -- echo ran")
    seen = _read_only(site, "ps -o json")

    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "nothing was granted or changed" in refused.stderr
    assert "Traceback" not in refused.stderr
    view = json.loads(seen.stdout)
    assert [tenant["name"] for tenant in view["tenants"]] == ["old"]
    assert site.partage("run", "--memory", "1GiB", "--", "echo", "ran").stdout == "ran\n"


def test_after_a_reboot_nobody_is_left(site: sites.Site, tmp_path: pathlib.Path) -> None:
    """Under another boot id the ledger is a clean slate, whoever has the old process ids now."""
    site.holding("--memory", "16GiB", "--name", "before")
    anew = tmp_path / "boot_id"
    anew.write_text("11111111-2222-3333-4444-555555555555\n", "ascii")
    script = (
        f"mount --bind {anew} /proc/sys/kernel/random/boot_id && "
        f"{shlex.quote(str(sites.PARTAGE))} run --memory 16GiB --cards 2 --no-wait -- echo ran"
    )

    done = _apart(site, script)

    assert (done.stdout, done.returncode) == ("ran\n", 0), done.stderr


def test_a_damaged_ledger_can_be_moved_away(site: sites.Site) -> None:
    """The text says so; running programs are found again by their leases, with the same shares."""
    site.holding("--memory", "10GiB", "--name", "old")
    path = site.state().ledger
    for file in path.parent.glob("ledger.db*"):
        file.write_bytes(b"no ledger at all, but long enough to be looked at" * 100)

    refused = site.partage("run", "--memory", "1GiB", "--", "echo", "ran")
    assert refused.returncode == 1
    assert "move it away" in refused.stderr
    for file in path.parent.glob("ledger.db*"):
        file.unlink()

    again = site.partage("run", "--memory", "10GiB", "--cards", "2", "--no-wait", "--", "true")
    assert again.returncode == 75
    assert site.names() == ["old"]


def test_those_who_wait_go_on_with_the_ledger_that_is_there(site: sites.Site) -> None:
    """It was moved away while they waited: they are in the new one, and nobody decides twice."""
    holder = site.holding("--memory", "16GiB", "--cards", "2", "--name", "holder")
    waiters = [
        site.run("--memory", "16GiB", "--name", name, command=["sh", "-c", "echo ran; sleep 600"])
        for name in ("first", "second", "third")
    ]
    sites.eventually(lambda: len(site.queued()) == 3)
    last = site.names("waiting")[-1]
    for file in site.folder.glob("ledger.db*"):
        file.rename(site.folder.parent / f"old-{file.name}")
    holder.kill()

    sites.eventually(lambda: len(site.names()) == 2)
    assert site.names("waiting") == [last]
    assert [waiter.poll() for waiter in waiters] == [None, None, None]
    with site.book() as book:
        assert sum(entry.grant is not None for entry in book.all()) == 2


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM entries",
        "UPDATE entries SET grant_json = CAST(replace(grant_json, '10240', '1') AS BLOB)",
        "UPDATE entries SET grant_json = NULL, granted_at = NULL",
        "UPDATE entries SET grant_json = x'6e6f'",
        "UPDATE entries SET demand = x'7b7d'",
        "UPDATE entries SET boot_id = 'another'",
    ],
)
def test_a_row_that_somebody_changed_is_put_right(site: sites.Site, change: str) -> None:
    """The lease of its owner is believed: nobody's grant is released by writing to the ledger."""
    site.holding("--memory", "10GiB", "--name", "old")
    with contextlib.closing(sqlite3.connect(site.state().ledger)) as connection, connection:
        connection.execute(change)

    refused = site.partage("run", "--memory", "10GiB", "--cards", "2", "--no-wait", "--", "true")

    assert refused.returncode == 75
    with site.book() as book:
        (entry,) = liveness.look(site.state(), book.all()).living
        assert entry.container is not None
        assert entry.container.shares[0].memory_mib == 10240


def test_nothing_is_written_by_a_decision_that_fails(site: sites.Site) -> None:
    """What was written before the failure is not there afterwards."""
    site.partage("ps")

    def fail(book: ledger.Ledger) -> None:
        with book.deciding():
            book.set_fact("half", "written")
            raise RuntimeError

    with site.book() as book:
        with pytest.raises(RuntimeError):
            fail(book)
        assert book.fact("half") is None


def test_an_error_of_sqlite_is_told_with_what_to_do(tmp_path: pathlib.Path) -> None:
    """Every kind that can happen to a user has its own words."""
    with pytest.raises(errors.LedgerError, match="cannot be opened"), database.explained(tmp_path):
        sqlite3.connect(tmp_path / "no" / "where")


def _read_only(site: sites.Site, arguments: str) -> subprocess.CompletedProcess[str]:
    """The command where the ledger's disk is read-only, while programs elsewhere have it open."""
    where = site.folder
    mounted = f"mount --bind {where} {where} && mount -o remount,bind,ro {where}"
    return _apart(site, f"{mounted} && {shlex.quote(str(sites.PARTAGE))} {arguments}")


def _apart(site: sites.Site, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script that mounts, where nobody else sees it."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        leaving_out.leave_out("another mount namespace", "only root makes one")
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env=site.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=sites.PATIENCE_S,
    )
