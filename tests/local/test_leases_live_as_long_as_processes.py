"""A grant lives as long as any process that inherited it, and not a moment longer."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from partage.fence import processes
from partage.fence.store import locks
from partage.local.state import leases
from tests.local import sites
from tests.local.sites import Site

SHARE = ("--memory", "10GiB", "--card", "0")

_CLOSES_ALL = """
import os, pathlib, signal, sys
os.closerange(3, 1 << 16)
print("closed", flush=True)
signal.pause()
"""


@pytest.fixture
def others() -> Iterator[list[int]]:
    """Processes that are nobody's child any more, to be ended with the test."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _free_mib(site: Site) -> int:
    """What can be granted of the first card."""
    free_mib: int = site.view()["cards"][0]["free_mib"]
    return free_mib


def _ended(pid: int) -> bool:
    kernel_facts = processes.stat(pid)
    return kernel_facts is None or kernel_facts.ended


def test_a_child_that_lives_on_keeps_the_grant(site: Site, others: list[int]) -> None:
    """The program ends before the child it left in the background; the share is the child's."""
    program = site.run(*SHARE, command=["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"])
    out, _ = program.communicate(timeout=sites.PATIENCE_S)
    others.append(int(out))
    assert program.returncode == 0
    assert site.names() == ["sh-1"]
    done = site.partage("run", *SHARE, "--no-wait", "--", "echo", "never")
    assert (done.returncode, done.stdout) == (75, "")
    os.kill(int(out), signal.SIGKILL)
    sites.eventually(lambda: _ended(int(out)))
    assert site.names() == []
    assert site.partage("run", *SHARE, "--no-wait", "--", "true").returncode == 0


def test_a_program_that_closes_all_files_keeps_its_grant(site: Site) -> None:
    """The lock went with the file, and the program still counts."""
    program = site.run(*SHARE, command=[sys.executable, "-c", _CLOSES_ALL])
    assert program.stdout is not None
    assert program.stdout.readline() == "closed\n"
    (token,) = leases.tokens(site.folder / "leases")
    lease_file = leases.find(site.folder / "leases", token)
    assert lease_file is not None
    assert not lease_file.locked
    assert site.names() == [f"{pathlib.Path(sys.executable).name}-1"]
    assert site.partage("run", *SHARE, "--no-wait", "--", "true").returncode == 75
    program.kill()
    program.wait()
    assert site.names() == []
    assert site.partage("run", *SHARE, "--no-wait", "--", "true").returncode == 0


def test_a_daemon_that_uses_cuda_keeps_the_grant(
    site: Site, tmp_path: pathlib.Path, others: list[int]
) -> None:
    """Neither file nor parent is left, and the fence still knows the process."""
    said = tmp_path / "said"
    command = [sys.executable, str(sites.PROGRAM), "daemon", "1000", str(said)]
    program = site.run(*SHARE, "--name", "daemon", command=command)
    assert program.wait(sites.PATIENCE_S) == 0
    sites.eventually(lambda: said.exists() and said.read_text().endswith("\n"))
    daemon = int(said.read_text())
    others.append(daemon)
    view = site.view()
    assert [tenant["name"] for tenant in view["tenants"]] == ["daemon"]
    assert view["tenants"][0]["processes"] == [daemon]
    assert view["foreign"] == []
    assert site.partage("run", *SHARE, "--no-wait", "--", "true").returncode == 75
    assert site.names() == ["daemon"], "whoever swept left it alone"
    os.kill(daemon, signal.SIGKILL)
    sites.eventually(lambda: _ended(daemon))
    assert site.names() == []
    assert site.partage("run", *SHARE, "--no-wait", "--", "true").returncode == 0


def test_a_killed_program_gives_its_share_back_at_once(site: Site) -> None:
    """With -9, and nobody waits for it: the zombie that remains holds nothing."""
    program = site.using(1000, *SHARE)
    assert _free_mib(site) == 6 * 1024
    os.kill(program.pid, signal.SIGKILL)
    sites.eventually(lambda: _ended(program.pid))
    assert processes.stat(program.pid) is not None, "it is a zombie until its parent looks"
    assert _free_mib(site) == 16 * 1024
    assert site.partage("run", *SHARE, "--no-wait", "--", "true").returncode == 0


def test_a_zombie_in_a_share_does_not_keep_it(site: Site, others: list[int]) -> None:
    """A child whose parent never looks is no process any more, though its parent lives on."""
    script = (
        "import os, signal\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork():\n"
        "        os.closerange(3, 1 << 16)\n"
        "        print(os.getpid(), flush=True)\n"
        "        signal.pause()\n"
        "    os._exit(0)\n"
        "signal.pause()\n"
    )
    program = site.run(*SHARE, command=[sys.executable, "-c", script])
    assert program.stdout is not None
    keeper = int(program.stdout.readline())
    others.append(keeper)
    program.kill()
    program.wait()
    assert not _ended(keeper)
    sites.eventually(lambda: site.names() == [])


def test_what_the_ended_left_is_removed_by_the_next(site: Site) -> None:
    """Leases and fences of the ended; those of the living stay."""
    kept = site.using(100, "--memory", "1GiB", "--name", "kept")
    for name in ("one", "two"):
        ended = site.using(100, "--memory", "1GiB", "--name", name)
        ended.kill()
        ended.wait()
    tenants, folder = site.folder / "fence/tenants", site.folder / "leases"
    with site.book() as book:
        assert {entry.name for entry in book.all()} >= {"kept", "two"}
    assert (tenants / f"two.{_token(site, 'two')}").exists()
    assert site.partage("run", "--memory", "1GiB", "--", "true").returncode == 0
    with site.book() as book:
        living = {entry.name: entry for entry in book.all()}
    assert living.keys() == {"kept", "true-4"}
    assert set(leases.tokens(folder)) == {entry.token for entry in living.values()}
    assert {path.name for path in tenants.iterdir()} == {e.tenant for e in living.values()}
    assert kept.poll() is None


def _token(site: Site, name: str) -> str:
    with site.book() as book:
        return next(entry.token for entry in book.all() if entry.name == name)


def test_who_may_only_read_a_lease_cannot_keep_it(site: Site) -> None:
    """A lock for reading, which anybody can take, is not the lock of the owner."""
    program = site.holding(*SHARE)
    (token,) = leases.tokens(site.folder / "leases")
    program.kill()
    program.wait()
    with (site.folder / "leases" / token).open("rb") as reader:
        lock = struct.pack("hhqqi0q", fcntl.F_RDLCK, os.SEEK_SET, 0, 1, 0)
        fcntl.fcntl(reader, fcntl.F_OFD_SETLK, lock)
        with (site.folder / "leases" / token).open("rb") as other:
            assert locks.held(other.fileno(), 0), "somebody has a lock"
            assert not locks.written(other.fileno(), 0)
        assert site.names() == []
        assert site.partage("run", *SHARE, "--no-wait", "--", "true").returncode == 0
    assert token not in leases.tokens(site.folder / "leases")


def test_who_waits_and_is_killed_leaves_the_queue(site: Site) -> None:
    """A place in the queue is a lease like any other."""
    site.holding(*SHARE, "--name", "holder")
    waiter = site.run(*SHARE, "--name", "waiter", command=["true"], stderr=subprocess.DEVNULL)
    sites.eventually(lambda: site.queued() == ["waiter"])
    waiter.kill()
    waiter.wait()
    assert site.names("waiting") == []
