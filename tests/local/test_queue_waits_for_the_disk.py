"""Waiting programs keep their places while the ledger's disk is full or read-only."""

from __future__ import annotations

import pathlib
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests import disks
from tests.local import sites


@pytest.fixture
def full(tmp_path: pathlib.Path) -> Iterator[sites.Site]:
    """A machine whose ledger is on a small disk, and whose cards are elsewhere."""
    with disks.small(tmp_path / "disk") as disk:
        site = sites.Site(disk, state=str(tmp_path / "machine"))
        yield site
        site.end()


def _waiter(site: sites.Site, *options: str) -> tuple[subprocess.Popen[str], ...]:
    """Somebody who has all, and one who waits for it."""
    holder = site.holding("--memory", "16GiB", "--cards", "2", "--name", "holder")
    waiter = site.run("--memory", "1GiB", "--name", "waiter", *options, command=["echo", "ran"])
    sites.eventually(lambda: site.queued() == ["waiter"])
    return holder, waiter


def _said(waiter: subprocess.Popen[str], words: str) -> str:
    """The line in which the waiter says it."""
    assert waiter.stderr is not None
    for line in waiter.stderr:
        if words in line:
            return line
    raise AssertionError(f"{words} was not said")


def test_the_waiting_keep_their_place_while_the_disk_is_full(full: sites.Site) -> None:
    """One line says so; the program starts when there is room again."""
    holder, waiter = _waiter(full)
    filler = full.folder.parent / "filler"
    disks.fill(filler)
    holder.kill()

    said = _said(waiter, "disk is full")
    assert "keeps its place, and tries again" in said
    assert waiter.poll() is None
    filler.unlink()
    out, err = waiter.communicate(timeout=sites.PATIENCE_S)

    assert (out, waiter.returncode) == ("ran\n", 0), err
    assert "disk is full" not in err


def test_a_fence_that_cannot_be_written_is_put_up_later(full: sites.Site) -> None:
    """The grant could still be written; its owner has it, and starts when the fence is there."""
    holder, waiter = _waiter(full)
    with disks.read_only(full.folder / "fence"):
        holder.kill()
        said = _said(waiter, "fence of waiter cannot be written")
    out, err = waiter.communicate(timeout=sites.PATIENCE_S)

    assert "keeps its place, and tries again" in said
    assert (out, waiter.returncode) == ("ran\n", 0), err


@pytest.mark.slow  # the time to wait has to be long enough for a busy machine to fill the disk
def test_who_waits_no_longer_is_told_of_the_disk(full: sites.Site) -> None:
    """The time is over while nothing can be written: the same exit code as without room."""
    holder, waiter = _waiter(full, "--wait", "5s")
    disks.fill(full.folder.parent / "filler")
    holder.kill()

    out, err = waiter.communicate(timeout=sites.PATIENCE_S)

    assert (out, waiter.returncode) == ("", 75), err
    assert "the time to wait is over" in err.splitlines()[-1]
    assert "disk is full" in err.splitlines()[-1]
    assert "Traceback" not in err


def test_the_waiting_can_leave_while_the_disk_is_full(full: sites.Site) -> None:
    """Ctrl-C is heard between two attempts."""
    holder, waiter = _waiter(full)
    disks.fill(full.folder.parent / "filler")
    holder.kill()
    _said(waiter, "disk is full")
    waiter.send_signal(signal.SIGINT)
    _, err = waiter.communicate(timeout=sites.PATIENCE_S)

    assert waiter.returncode == 130
    assert "Traceback" not in err


def test_the_waiting_keep_their_place_while_the_disk_is_read_only(full: sites.Site) -> None:
    """The ledger was moved away, and no other can be made yet."""
    holder, waiter = _waiter(full)
    waiter.send_signal(signal.SIGSTOP)
    holder.kill()
    for file in full.folder.glob("ledger.db*"):
        file.rename(full.folder.parent / f"old-{file.name}")
    with disks.read_only(full.folder):
        waiter.send_signal(signal.SIGCONT)
        said = _said(waiter, "Read-only file system")
        assert "keeps its place, and tries again" in said
    out, err = waiter.communicate(timeout=sites.PATIENCE_S)

    assert (out, waiter.returncode) == ("ran\n", 0), err
