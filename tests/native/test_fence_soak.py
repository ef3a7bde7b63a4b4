"""Processes that take and give back at random and are killed at random: the quota holds throughout.

Some twenty seconds of it; PARTAGE_SOAK_S makes it longer.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native import fenced
from tests.native.fenced import GIB, MIB

SOAK_S = float(os.environ.get("PARTAGE_SOAK_S", "20"))
QUOTA = 3 * GIB // 2
CONTEXT = 16 * MIB  # small, so that there is room for other things
MOST = 256 * MIB


class Crowd:
    """Processes of one tenant, by every way in; one is replaced now and then."""

    def __init__(self, tenant: fenced.Tenant, folder: Path, chance: random.Random) -> None:
        self.tenant, self.chance = tenant, chance
        self.racer = fenced.compiled(folder / "racer", "racer.c")
        self.tally = folder / "tally"
        self.pids: set[int] = set()
        self.deaths = 0
        self.quick = [self.start_quick() for _ in range(3)]
        self.varied = [self.start_varied() for _ in range(3)]

    def start_quick(self) -> fenced.Process:
        """One that allocates and frees as fast as C can."""
        command = [str(self.racer), str(MOST // MIB)]
        process = self.tenant.machine.run_in_background(command, self.entered())
        self.pids.add(process.pid)
        return process

    def start_varied(self) -> fenced.Process:
        """One that uses every way there is."""
        process = self.tenant.machine.start(self.entered())
        process.tell("context()")
        process.tell(f"soak({process.pid}, {MOST}, {str(self.tally)!r})")
        self.pids.add(process.pid)
        return process

    def entered(self) -> dict[str, str]:
        """What puts the next one behind the fence."""
        return self.chance.choice(list(self.tenant.environments.values()))

    def replace_one(self) -> None:
        """Kill one, whatever it is doing, and start another.

        A varied one is spared until it has begun: on a busy machine none would come to it.
        """
        some, start = self.chance.choice(
            [(self.quick, self.start_quick), (self.varied, self.start_varied)]
        )
        victim = self.chance.randrange(len(some))
        if some is self.varied and not some[victim].answers():
            return
        some[victim].kill()
        some[victim] = start()
        self.deaths += 1

    def finish(self) -> int:
        """Have all of them give back what they have; how often varied ones, dead or alive, took."""
        for process in self.quick:
            finish_quick(process)
        for process in self.varied:
            process.tell("1")
        for process in self.varied:
            finish_varied(process)
        return self.tally.stat().st_size


def finish_quick(process: fenced.Process) -> None:
    """It found all that it held as it had left it, and freed it; or it never had a context."""
    with contextlib.suppress(BrokenPipeError):
        process.tell("1")
    if process.line() != "freed all":
        assert process.end() == ""


def finish_varied(process: fenced.Process) -> None:
    """It freed all that it held; or it never had a context."""
    if process.outcome() != fenced.OUT_OF_MEMORY:
        assert process.heard() is None
        assert process.heard() == 1


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[fenced.Machine]:
    """A machine whose contexts are small."""
    with fenced.machine(tmp_path, "2x16GiB", context_mib=str(CONTEXT // MIB)) as made:
        yield made


@pytest.mark.slow  # its worth is its length
def test_at_no_moment_has_a_tenant_more_than_its_quota(
    machine: fenced.Machine, tmp_path: Path
) -> None:
    """And in the end the accounts are the driver's, and neighbours' memory is as they left it."""
    chance = random.Random(20)
    tenant = machine.tenant(cards=(0, 1), memory_bytes=QUOTA, context_bytes=CONTEXT)
    beside = machine.tenant("beside", memory_bytes=QUOTA, context_bytes=CONTEXT)
    crowd = Crowd(tenant, tmp_path, chance)
    neighbour = machine.run_in_background([str(crowd.racer), "100"], beside.environment)
    samples, most, end = 0, 0, time.monotonic() + SOAK_S
    while time.monotonic() < end:
        for card in (0, 1):
            truth = machine.truth(card)
            held = sum(used for pid, used in truth.items() if pid in crowd.pids)
            assert held <= QUOTA, truth
            samples, most = samples + 1, max(most, held)
        if chance.random() < 0.05:
            crowd.replace_one()

    taken = crowd.finish()
    assert neighbour.running.poll() is None
    finish_quick(neighbour)
    for card in (0, 1):
        counted = {**tenant.counted(card), **(beside.counted() if card == 0 else {})}
        assert {pid: used for pid, used in counted.items() if used} == machine.truth(card)
    assert tenant.usage().peak_bytes <= QUOTA
    # It was worth it: the quota was met, some died, and something was taken, however busy it was.
    assert most > QUOTA - MOST
    assert min(samples, crowd.deaths, taken) > SOAK_S / 4
    assert tenant.usage().refused > 10
