"""Two hundred programs on four cards, and random ones of them killed at random moments."""

from __future__ import annotations

import collections
import contextlib
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from partage.core import cards, grants
from partage.fence import processes
from partage.fence.store import roots, tenants
from partage.local.state import leases
from tests.local import sites

RUNS, KILLED, CARD_MIB = 200, 60, 16 * 1024
FIELDS = ("PARTAGE_NAME", "PARTAGE_MEMORY_BYTES", "PARTAGE_COMPUTE_PERCENT")


class Living(msgspec.Struct, frozen=True):
    """A program that was found among the processes of the machine."""

    pid: int
    started_ticks: int
    name_and_shares: tuple[str, ...]  # its name and its shares, as its environment has them


def test_no_card_is_over_and_every_survivor_runs_exactly_once(tmp_path: pathlib.Path) -> None:
    """At every sample no card is over; nobody is lost, run twice, or left behind."""
    site = sites.Site(tmp_path, cards=f"4x{CARD_MIB // 1024}GiB")
    chance = random.Random(7)
    ran = tmp_path / "ran"
    site.partage("ps")  # makes the place
    try:
        with _watched(site) as samples:
            started = [_started(site, chance, ran, number) for number in range(RUNS)]
            killed = _killed(started, chance)
            for process in started:
                process.wait(timeout=240)
        assert _left(site) == (["last"], 1, 1)
    finally:
        site.end()

    counts = collections.Counter(ran.read_text("ascii").split())
    survivors = [f"job-{i}" for i in range(RUNS) if started[i] not in killed]
    assert all(started[i].returncode == 0 for i in range(RUNS) if started[i] not in killed)
    assert [name for name in survivors if counts[name] != 1] == []
    assert max(counts.values()) == 1
    assert not samples.wrong
    assert samples.taken > 10
    assert samples.busiest > 2  # programs that lived at the same time, however busy the machine is


def test_nothing_is_left_behind(site: sites.Site) -> None:
    """After all have ended, killed ones too, the ledger is empty and so is the disk."""
    held = [site.holding("--memory", "2GiB", "--name", f"job-{i}") for i in range(6)]
    for process in held[::2]:
        process.kill()
    for process in held[1::2]:
        process.terminate()
    for process in held:
        process.wait()
    assert site.names() == []
    assert site.partage("run", "--memory", "1GiB", "--", "true").returncode == 0

    left = site.partage(
        "run", "--memory", "1GiB", "--name", "last", "--", "ls", site.state().leases
    )

    assert len(left.stdout.split()) == 1  # its own
    with site.book() as book:
        assert [entry.name for entry in book.all()] == ["last"]


def _left(site: sites.Site) -> tuple[list[str], int, int]:
    """Who is in the ledger, and how many leases and fences there are, when one more has run."""
    command = ("run", "--memory", "1GiB", "--name", "last", "--", "true")
    assert site.partage(*command).returncode == 0
    state = site.state()
    with site.book() as book:
        names = [entry.name for entry in book.all()]
    fenced = tenants.names(roots.find(state.fence))
    return names, len(leases.tokens(state.leases)), len(fenced)


def _started(
    site: sites.Site, chance: random.Random, ran: pathlib.Path, number: int
) -> subprocess.Popen[str]:
    """Small and large shares, some with two cards; a few really use their card."""
    memory = chance.choice((512, 1024, 3072, 4096, 8192))
    options = ["--memory", f"{memory}MiB", "--name", f"job-{number}"]
    if chance.random() < 0.7:
        options += ["--compute", f"{chance.choice((5, 10, 30, 50))}%"]
    if chance.random() < 0.1:
        options += ["--cards", "2"]
    work = f"sleep {chance.uniform(0.1, 0.8):.2f}"
    if number % 20 == 0:
        work = shlex.join([sys.executable, str(sites.PROGRAM), "try", "256"])
    return site.run(
        *options,
        command=["sh", "-c", f"echo $PARTAGE_NAME >> {ran}; {work}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _killed(
    started: list[subprocess.Popen[str]], chance: random.Random
) -> list[subprocess.Popen[str]]:
    """Some that wait, some that start, some that run, some that have ended already."""
    victims = chance.sample(started, KILLED)
    killed = []
    for process in victims:
        time.sleep(chance.uniform(0, 0.4))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed.append(process)
    return killed


class _Samples:
    """What was seen while it ran."""

    def __init__(self) -> None:
        self.taken = 0
        self.busiest = 0
        self.wrong: list[str] = []

    def take(self, site: sites.Site) -> None:
        """Once from the ledger, once from the processes themselves."""
        with site.book() as book:
            granted = [entry.grant for entry in book.all() if entry.grant is not None]
        self._check("ledger", _sums(granted))
        before, after = _living(site), _living(site)
        alive = before & after  # they lived at the same moment
        both = {process.name_and_shares: process for process in alive}
        self._check("processes", _card_sums(both))
        self.busiest = max(self.busiest, len(both))
        self.taken += 1

    def _check(self, who: str, sums: dict[str, tuple[int, int]]) -> None:
        for uuid, (memory_mib, percent) in sums.items():
            if memory_mib > CARD_MIB or percent > cards.FULL_PERCENT:
                self.wrong.append(f"{who}: {uuid} has {memory_mib} MiB and {percent} %")


@contextlib.contextmanager
def _watched(site: sites.Site) -> Iterator[_Samples]:
    samples, done, failed = _Samples(), threading.Event(), []

    def watch() -> None:
        try:
            while not done.wait(0.1):
                samples.take(site)
        except Exception as error:  # noqa: BLE001 (told below, where the test sees it)
            failed.append(error)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield samples
    finally:
        done.set()
        watching.join()
    if failed:
        pytest.fail(f"sampling failed: {failed[0]!r}")


def _sums(granted: list[grants.Grant]) -> dict[str, tuple[int, int]]:
    sums: dict[str, tuple[int, int]] = {}
    for grant in granted:
        for uuid, taking in grants.takings(grant).items():
            memory_mib, percent = sums.get(uuid, (0, 0))
            sums[uuid] = memory_mib + taking.memory_mib, percent + taking.compute_percent
    return sums


def _living(site: sites.Site) -> set[Living]:
    """Programs that run with a share of the site, as their environments say."""
    living = set()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            texts = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            environment = dict(text.partition("=")[::2] for text in texts)
            stat = processes.stat(int(folder.name))
            is_of_site = environment.get("PARTAGE_STATE") == str(site.folder)
            if is_of_site and "PARTAGE_NAME" in environment and stat and not stat.ended:
                shares = tuple(environment.get(name, "") for name in FIELDS)
                living.add(Living(int(folder.name), stat.started_ticks, shares))
    return living


def _card_sums(living: dict[tuple[str, ...], Living]) -> dict[str, tuple[int, int]]:
    """The shares in their environments, added up by card; processes of one program count once."""
    sums: dict[str, tuple[int, int]] = {}
    for _, memory, compute in living:
        percents = dict(part.split("=") for part in compute.split(",") if part)
        for part in memory.split(","):
            uuid, _, amount = part.partition("=")
            memory_mib, percent = sums.get(uuid, (0, 0))
            more = int(percents.get(uuid, "0"))
            sums[uuid] = memory_mib + int(amount) // (1 << 20), percent + more
    return sums
