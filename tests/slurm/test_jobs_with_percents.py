"""mps on a real Slurm, and cards of different sizes: each share is of the card that the job has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import leaving_out
from tests.native import fenced
from tests.slurm import held_slurm

pytestmark = leaving_out.needs_root

GIB = 1 << 30
PAGE = 2 << 20  # bytes; drivers give memory in such steps
SEES = "[total_memory(0), memory_info()[1]]"


@pytest.fixture(scope="module")
def slurm() -> Iterator[held_slurm.HeldSlurm]:
    """A card of 24 GiB and one of 16."""
    with held_slurm.opened("24GiB,16GiB", sharing="mps", compute="share") as running:
        yield running


@pytest.mark.parametrize("constrained", ["yes", "no"])
def test_percents_are_of_memory_and_time_of_the_jobs_own_card(
    slurm: held_slurm.HeldSlurm, constrained: str
) -> None:
    """Without a daemon of MPS. The second does not fit beside the first: it has the other card.

    Where Slurm does not constrain devices it counts cards otherwise.
    """
    conf = slurm.private.folder / "cgroup.conf"
    kept = [line for line in conf.read_text().splitlines() if not line.startswith("Constrain")]
    slurm.private.write("cgroup.conf", [*kept, f"ConstrainDevices={constrained}"])
    slurm.private.restart()
    first = slurm.program("--gres=mps:25")
    second = slurm.program("--gres=mps:90")
    for program, total in ((first, 6 * GIB), (second, 16 * GIB * 90 // 100)):
        program("context(0)")
        assert program(SEES) == [total, total]
        assert program.code(f"alloc({total})") == fenced.OUT_OF_MEMORY
        assert program.code(f"alloc({(total - fenced.CONTEXT_BYTES) & -PAGE})") == 0
        assert program.code(f"alloc({PAGE})") == fenced.OUT_OF_MEMORY
    one, other = (slurm.used(job) for job in slurm.jobs())
    assert [one.uuid, other.uuid] == [device.uuid for device in slurm.devices]
    assert (one.mode, one.share_millionths) == ("fixed", 250_000)
    assert (other.mode, other.share_millionths) == ("fixed", 900_000)
    first.end()
    second.end()
    slurm.until(lambda: not slurm.jobs())


def test_a_number_of_shards_that_a_user_sets_means_nothing(slurm: held_slurm.HeldSlurm) -> None:
    """It is the variable of the other way to share, and Slurm does not clear it here."""
    program = slurm.program("--gres=mps:25", SLURM_SHARDS_ON_NODE="24")
    program("context(0)")
    assert program(SEES) == [6 * GIB, 6 * GIB]
    program.end()


def test_a_percentage_that_a_user_sets_means_nothing_for_a_whole_card(
    slurm: held_slurm.HeldSlurm,
) -> None:
    """Slurm clears it, as for a job that is submitted in a job with percents."""
    program = slurm.program("--gres=gpu:1", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="20")
    program("context(0)")
    assert program(SEES) == [24 * GIB, 24 * GIB]
    assert slurm.jobs() == []
    program.end()
