"""Two hundred programs on four cards, and random ones of them killed at random moments."""

from __future__ import annotations

import collections
import contextlib
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from partage.core import cards, grants
from partage.fence import roots, tenants
from partage.local import leases, processes
from tests.local import sites

RUNS, KILLED, CARD_MIB = 200, 60, 16 * 1024
FIELDS = ("PARTAGE_NAME", "PARTAGE_MEMORY_BYTES", "PARTAGE_COMPUTE_PERCENT")


class Living(msgspec.Struct, frozen=True):
    """A program that was found among the processes of the machine."""

    pid: int
    started_ticks: int
    told: tuple[str, ...]  # its name and its shares, as its environment has them


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
        "run", "--memory", "1GiB", "--name", "last", "--", "ls", site.place().leases
    )

    assert len(left.stdout.split()) == 1  # its own
    with site.book() as book:
        assert [entry.name for entry in book.all()] == ["last"]


def _left(site: sites.Site) -> tuple[list[str], int, int]:
    """Who is in the ledger, and how many leases and fences there are, when one more has run."""
    command = ("run", "--memory", "1GiB", "--name", "last", "--", "true")
    assert site.partage(*command).returncode == 0
    place = site.place()
    with site.book() as book:
        names = [entry.name for entry in book.all()]
    fenced = tenants.names(roots.find(place.fence))
    return names, len(leases.tokens(place.leases)), len(fenced)


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
        work = f"{sys.executable} {sites.PROGRAM} try 256"
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
        before, after = _living(), _living()
        both = {each.told: each for each in before & after}  # they lived at the same moment
        self._check("processes", _told(both))
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


def _living() -> set[Living]:
    """Programs that run with a share, as their environments say."""
    found = set()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            texts = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            told = dict(text.partition("=")[::2] for text in texts)
            stat = processes.stat(int(folder.name))
            if told.get("PARTAGE_NAME", "").startswith("job-") and stat and not stat.ended:
                shares = tuple(told.get(name, "") for name in FIELDS)
                found.add(Living(int(folder.name), stat.started_ticks, shares))
    return found


def _told(living: dict[tuple[str, ...], Living]) -> dict[str, tuple[int, int]]:
    """What they were told, added up by card; processes of one program count once."""
    sums: dict[str, tuple[int, int]] = {}
    for _, memory, compute in living:
        percents = dict(part.split("=") for part in compute.split(",") if part)
        for part in memory.split(","):
            uuid, _, amount = part.partition("=")
            memory_mib, percent = sums.get(uuid, (0, 0))
            more = int(percents.get(uuid, "0"))
            sums[uuid] = memory_mib + int(amount) // (1 << 20), percent + more
    return sums
