"""Those who hold up a queue: stopped, renamed, or changed by somebody else; the others go on."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys

import msgspec
import pytest

from partage.fence import processes
from partage.fence.store import roots, tenants
from partage.local.ledger import database
from tests.local import sites, users


def test_a_stopped_program_holds_up_nobody_who_fits(site: sites.Site) -> None:
    """The first that waits was stopped by Ctrl-Z; the next decides in its place."""
    holder = site.holding("--exclusive", "--cards", "2")
    first = _waiting(site, "--exclusive", "--card", 0, name="first")
    second = _waiting(site, "--exclusive", "--card", 1, name="second")
    first.send_signal(signal.SIGSTOP)
    holder.kill()

    assert second.wait(timeout=sites.PATIENCE_S) == 0
    first.send_signal(signal.SIGCONT)
    assert first.wait(timeout=sites.PATIENCE_S) == 0


def test_a_stopped_program_is_not_granted_what_it_cannot_use(site: sites.Site) -> None:
    """The next one starts in its place; `ps` says why it waits, and it goes on when it can."""
    holder = site.holding("--exclusive", "--cards", "2", "--name", "holder")
    first = _waiting(site, "--exclusive", "--cards", 2, name="first")
    second = _waiting(site, "--exclusive", "--cards", 2, name="second")
    first.send_signal(signal.SIGSTOP)
    sites.eventually(lambda: processes.stopped(first.pid))
    (stopped, behind) = site.view()["waiting"]
    holder.kill()

    assert second.wait(timeout=sites.PATIENCE_S) == 0
    assert site.names() == []
    assert (stopped["name"], stopped["place"]) == ("first", 1)
    assert stopped["reason"].startswith("it is stopped, and others start before it; `fg` or")
    assert behind["reason"].startswith("card 0 is taken whole")
    first.send_signal(signal.SIGCONT)
    assert first.wait(timeout=sites.PATIENCE_S) == 0


def test_who_decides_cannot_be_stopped_by_a_terminal(site: sites.Site) -> None:
    """Ctrl-Z in the middle of a decision comes after it."""
    site.partage("ps")
    with site.book() as book:
        with book.deciding():
            assert signal.SIGTSTP in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        assert signal.SIGTSTP not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_waiting_program_keeps_its_place_while_the_ledger_is_busy(site: sites.Site) -> None:
    """A process was stopped in its decision for longer than others want to wait for it."""
    holder = site.holding("--exclusive", "--cards", "2")
    impatient = "from partage.local.ledger import database; database.BUSY_S = 0.1"
    waiting = _changed(site, impatient, "run", "--exclusive", "--name", "waits", "--", "true")
    sites.eventually(lambda: site.queued() == ["waits"])
    with site.book() as book, book.deciding():
        holder.kill()  # which wakes the waiter
        holder.wait()
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=2)

    assert waiting.wait(timeout=sites.PATIENCE_S) == 0


def test_whoever_comes_can_leave_while_the_ledger_is_busy(site: sites.Site) -> None:
    """Ctrl-C is heard long before anybody would give up."""
    site.partage("ps")
    with site.book() as book, book.deciding():
        coming = site.run("--memory", "1GiB", command=["true"])
        assert coming.stderr is not None
        assert "simulated" in coming.stderr.readline()  # the last that is said before one's turn
        coming.send_signal(signal.SIGINT)

        assert coming.wait(timeout=database.BUSY_S / 4) == 130


def test_whoever_waits_can_leave_while_the_ledger_is_busy(site: sites.Site) -> None:
    """Ctrl-C needs nobody's leave: the row that stays is swept by the next decision."""
    site.holding("--exclusive", "--cards", "2")
    waiting = _waiting(site, "--exclusive", name="waits")
    with site.book() as book, book.deciding():
        waiting.send_signal(signal.SIGINT)

        assert waiting.wait(timeout=database.BUSY_S / 4) == 130
    assert site.names("waiting") == []


@pytest.mark.parametrize("how", [["--no-wait"], ["--wait", "1s"]])
def test_a_newcomer_waits_no_longer_for_a_busy_ledger_than_it_wants(
    site: sites.Site, how: list[str]
) -> None:
    """A process hangs in its decision: that there was no time is told as without it."""
    site.partage("ps")
    with site.book() as book, book.deciding():
        coming = site.run("--memory", "1GiB", *how, command=["echo", "ran"])
        out, said = coming.communicate(timeout=database.BUSY_S / 2)

    assert (out, coming.returncode) == ("", 75)
    assert "the time to wait is over: the ledger" in said
    assert "was in use by others all the time" in said


@pytest.mark.slow  # the time to wait has to be long enough for a busy machine to see it
def test_a_program_waits_no_longer_than_it_wants_while_the_ledger_is_busy(
    site: sites.Site,
) -> None:
    """The time to wait runs on during the attempts to decide."""
    site.holding("--exclusive", "--cards", "2")
    waiting = _waiting(site, "--exclusive", "--wait", "6s", name="waits")
    with site.book() as book, book.deciding():
        assert waiting.wait(timeout=database.BUSY_S / 2) == 75


def test_a_grant_counts_under_every_name_of_the_machine(site: sites.Site) -> None:
    """A machine that is renamed while programs run does not give their cards away again."""
    users.need_root()
    site.holding("--memory", "12GiB", "--card", 0)
    arguments = ("run", "--no-wait", "--memory", "12GiB", "--card", "0", "--", "true")
    renamed = ("unshare", "--uts", "sh", "-c", 'hostname another && exec "$@"', "sh")
    done = subprocess.run(
        [*renamed, sites.PARTAGE, *arguments],
        env=site.environment,
        capture_output=True,
        check=False,
    )

    assert done.returncode == 75


def test_nobody_else_takes_the_name_that_one_is_given(site: sites.Site) -> None:
    """A program with the name that the next would be given is no reason to refuse that one."""
    site.holding("--memory", "1GiB", "--name", "env-2")
    done = site.partage("run", "--memory", "1GiB", "--", "env")

    assert done.returncode == 0, done.stderr
    assert "PARTAGE_NAME=env-3\n" in done.stdout


def test_who_waits_believes_only_what_others_decide(site: sites.Site) -> None:
    """A row in which somebody changed whose it is, and what it is called, changes neither."""
    holder = site.holding("--exclusive", "--cards", "2")
    waiting = _waiting(site, "--memory", "1GiB", name="honest", command=["sleep", "600"])
    with site.book() as book:
        row = next(entry for entry in book.all() if entry.name == "honest")
        given = next(entry.grant for entry in book.all() if entry.grant)
    grant = msgspec.structs.replace(
        given, pod=msgspec.structs.replace(given.pod, uid=row.token, name="honest")
    )
    with contextlib.closing(sqlite3.connect(site.state().ledger)) as connection, connection:
        connection.execute(
            "UPDATE entries SET uid = 7, name = 'other', pid = 1, grant_json = ?, granted_at = 1 "
            "WHERE token = ?",
            [msgspec.json.encode(grant), row.token],
        )
    holder.kill()

    sites.eventually(lambda: site.names() == ["honest"] * len(site.names()) and site.names())
    (tenant, *_) = site.view()["tenants"]
    assert (tenant["uid"], tenant["pid"]) == (os.geteuid(), waiting.pid)


def test_two_who_resize_leave_the_fence_at_what_is_counted(site: sites.Site) -> None:
    """One gives more, and is overtaken by one that gives less before it moves the fence out."""
    site.holding("--memory", "8GiB", "--card", 0, "--name", "train")
    overtaken = f"""
import subprocess
from partage.local.run import resizing
moved = resizing._raise
def _raise(*arguments):
    subprocess.run([{str(sites.PARTAGE)!r}, "resize", "train", "--memory", "4GiB"], check=True)
    moved(*arguments)
resizing._raise = _raise
"""
    slow = _changed(site, overtaken, "resize", "train", "--memory", "12GiB")
    assert slow.wait(timeout=sites.PATIENCE_S) == 0

    with site.book() as book:
        (entry,) = book.all()
    fence = tenants.read(roots.find(site.state().fence), entry.tenant).limits.cards[0]
    assert entry.container is not None
    assert fence.memory_bytes >> 20 == entry.container.shares[0].memory_mib == 4096


def _waiting(
    site: sites.Site, *options: object, name: str, command: list[str] | None = None
) -> subprocess.Popen[str]:
    process = site.run("--name", name, *options, command=command or ["true"])
    sites.eventually(lambda: name in site.queued())
    return process


def _changed(site: sites.Site, how: str, *arguments: str) -> subprocess.Popen[bytes]:
    """``partage ARGUMENTS`` as a process, slower or less patient than usual."""
    script = f"import sys\n{how}\nfrom partage.cli import main\nmain.main()"
    return subprocess.Popen([sys.executable, "-c", script, *arguments], env=site.environment)
