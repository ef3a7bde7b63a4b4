"""The time of a card, as jobs of a real Slurm get it: measured by what the simulated card did.

Jobs of two users, with a quarter and three quarters of a card, want all of it. Kernels are long and
several wait at any moment, so a job needs a core only now and then, and a machine that is busy with
other things does little to the outcome.
"""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from partage.slurm.jobs import job_usage
from tests import leaving_out
from tests.native import fenced
from tests.slurm import held_slurm, taking_jobs

pytestmark = leaving_out.needs_root

UNIT = fenced.CONTEXT_BYTES  # of memory: the programs hold different multiples of it
KERNEL_US = 20_000
WINDOW_S = 1.5
SHARES = (0.25, 0.75)
SLACK = 0.08  # a kernel more or less at each end of the window, and what a late one makes up for
LEAST = 0.7  # of a share, in a quiet moment: a program without a core to run on cannot launch
WINDOWS = 20  # of which one has to be quiet enough to show the shares


@dataclasses.dataclass(frozen=True)
class Shared:
    """A card that Slurm shares in one way, and whose time is given in one way."""

    slurm: held_slurm.HeldSlurm
    sharing: str
    compute: str

    def worked_ns(self) -> dict[int, int]:
        """What the card did so far for each program; they are known by the memory they hold."""
        done = subprocess.run(
            [self.slurm.folder / "simulated/simsmi", "-p"],
            env=self.slurm.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        rows = [line.split() for line in done.stdout.splitlines()]
        return {int(held) // UNIT - 1: int(worked) for _, _, held, worked in rows}

    def working(self) -> int:
        """How many programs the card did something for."""
        return sum(ns > 0 for ns in self.worked_ns().values())


@pytest.fixture(
    scope="module",
    params=[("shard", "share"), ("shard", "burst"), ("mps", "share")],
    ids="-".join,
)
def shared(request: pytest.FixtureRequest) -> Iterator[Shared]:
    """One card of 16 GiB."""
    sharing, compute = request.param
    with held_slurm.opened("16GiB", sharing=sharing, compute=compute) as slurm:
        yield Shared(slurm, sharing, compute)


@pytest.fixture(autouse=True)
def calm(shared: Shared) -> Iterator[None]:
    """No job of one test runs in the next."""
    yield
    shared.slurm.end_jobs()
    shared.slurm.until(lambda: not shared.slurm.jobs())


def test_both_get_their_share_when_both_want_all(shared: Shared) -> None:
    """Fixed or not: the one has a quarter then, and the other three quarters."""
    with _programs(shared) as programs, _busy(shared, programs):
        windows = list(_windows(shared, _are_shares))
        jobs = shared.slurm.jobs()
    assert _are_shares(windows[-1]), windows
    _check_time_is_written_down(shared, jobs)
    if shared.compute == "share":
        assert all(
            part <= share + SLACK for w in windows for share, part in zip(SHARES, w, strict=True)
        )


def test_a_job_beside_an_idle_one_has_more_only_where_it_may(shared: Shared) -> None:
    """A quarter of the card where shares are fixed; much more where jobs may burst."""
    enough = 2 * SHARES[0] if shared.compute == "burst" else LEAST * SHARES[0]
    with _programs(shared) as programs, _busy(shared, programs[:1]):
        windows = list(_windows(shared, lambda achieved: achieved[0] > enough))
    assert windows[-1][0] > enough, windows
    assert all(idle == 0 for _, idle in windows)
    if shared.compute == "share":
        assert all(part <= SHARES[0] + SLACK for part, _ in windows)


@pytest.mark.parametrize("shared", [("shard", "burst")], indirect=True)
def test_a_suspended_job_leaves_its_time_to_others(shared: Shared) -> None:
    """Slurm stops its processes, so nothing of it is launched; then it has its share again."""
    enough = 2 * SHARES[0]
    with _programs(shared) as programs, _busy(shared, programs):
        second = str(shared.slurm.jobs()[1])
        assert shared.slurm.inside("scontrol", "suspend", second).returncode == 0
        alone = list(_windows(shared, lambda part: part[0] > enough and part[1] == 0))
        assert shared.slurm.inside("scontrol", "resume", second).returncode == 0
        both = list(_windows(shared, _are_shares))
    assert alone[-1][0] > enough, alone
    assert alone[-1][1] == 0, alone
    assert _are_shares(both[-1]), both


def _check_time_is_written_down(shared: Shared, jobs: Sequence[int]) -> None:
    """For each job what the card did for it, and that it waited for its turn."""
    shared.slurm.until(lambda: not shared.slurm.jobs())
    log = shared.slurm.held_nodes[0].log
    for job in jobs:
        [use] = job_usage.of_job(log, job)
        [card] = use.cards
        assert card.busy_ns > WINDOW_S * min(SHARES) * LEAST * 1e9
        assert card.throttled_ns > 0


@contextlib.contextmanager
def _programs(shared: Shared) -> Iterator[list[fenced.Process]]:
    """A job for each share, which holds some memory and works when it is told to."""
    whole = 100 if shared.sharing == "mps" else 16
    programs = []
    for number, (share, user) in enumerate(zip(SHARES, held_slurm.USERS, strict=True), start=1):
        request = f"--gres={shared.sharing}:{int(share * whole)}"
        program = shared.slurm.program(request, user=user)
        program(f"context(0); alloc({number * UNIT}); from timed_kernels import *; kernel()")
        programs.append(program)
    yield programs
    for program in programs:
        program.end()


@contextlib.contextmanager
def _busy(shared: Shared, programs: Sequence[fenced.Process]) -> Iterator[None]:
    """These always want more of the card; each has had some of it when this begins."""
    end = taking_jobs.shared_folder(shared.slurm) / "end"
    for program in programs:
        program.tell(f"keep_busy({str(end)!r}, {KERNEL_US})")
    try:
        shared.slurm.until(lambda: shared.working() == len(programs))
        yield
    finally:
        end.touch()
    for program in programs:
        program.heard()


def _are_shares(achieved: Sequence[float]) -> bool:
    return all(
        LEAST * share <= part <= share + SLACK for share, part in zip(SHARES, achieved, strict=True)
    )


def _windows(
    shared: Shared, is_enough: Callable[[Sequence[float]], bool]
) -> Iterator[Sequence[float]]:
    """What was achieved in one window after another, up to the first that is enough."""
    for _ in range(WINDOWS):
        achieved = _achieved(shared)
        yield achieved
        if is_enough(achieved):
            return


def _achieved(shared: Shared) -> list[float]:
    """Which part of the time each job had the card, in one window for all."""
    before, began = shared.worked_ns(), time.monotonic()
    while time.monotonic() - began < WINDOW_S:
        time.sleep(0.05)
    after, took_s = shared.worked_ns(), time.monotonic() - began
    return [(after[job] - before[job]) / (took_s * 1e9) for job in range(1, len(SHARES) + 1)]
