"""A card falls off the bus while jobs of a real Slurm run: it is that card's misfortune alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests import leaving_out
from tests.native import fenced
from tests.slurm import held_slurm

pytestmark = leaving_out.needs_root

GIB = 1 << 30
UNAVAILABLE = 46  # of CUDA


@pytest.fixture(scope="module")
def running() -> Iterator[held_slurm.HeldSlurm]:
    """Two cards of 16 GiB."""
    with held_slurm.opened("2x16GiB") as slurm:
        yield slurm


@pytest.fixture
def slurm(running: held_slurm.HeldSlurm) -> Iterator[held_slurm.HeldSlurm]:
    """Both cards are well when a test begins, and no job of one test runs in the next."""
    yield running
    running.end_jobs()
    running.until(lambda: not running.jobs())
    running.simsmi("reset")
    assert running.prepare().returncode == 0


def neighbours(slurm: held_slurm.HeldSlurm) -> tuple[fenced.Process, fenced.Process]:
    """A job on the first card, which it has to itself, and one with half of the second."""
    programs = slurm.program("--gres=shard:16"), slurm.program("--gres=shard:8", user="daemon")
    for program in programs:
        program("context(0); pointer = alloc(GIB)")
    return programs


def test_calls_fail_as_cuda_says_and_the_other_card_goes_on(slurm: held_slurm.HeldSlurm) -> None:
    """No call hangs, and the job can end."""
    first, second = neighbours(slurm)
    slurm.simsmi("lose", "0")
    assert first.code("alloc(GIB)") == UNAVAILABLE
    assert first.code("call('cuCtxSynchronize')") == UNAVAILABLE
    assert second.code("alloc(GIB)") == 0
    assert second.code("alloc(8 * GIB)") == fenced.OUT_OF_MEMORY
    first.end()
    second.end()


def test_what_the_job_used_is_known_all_the_same(slurm: held_slurm.HeldSlurm) -> None:
    """The Epilog asks no driver."""
    first, second = neighbours(slurm)
    [job, other] = slurm.jobs()
    slurm.simsmi("lose", "0")
    first.end()
    slurm.until(lambda: slurm.jobs() == [other])
    [use] = slurm.uses(job)
    [card] = use["cards"]
    assert (card["peak_bytes"], use["problem"]) == (GIB + fenced.CONTEXT_BYTES, "")
    second.end()


def test_the_next_job_is_told_by_cuda(slurm: held_slurm.HeldSlurm) -> None:
    """Slurm does not know, and gives the card away; the job's first call says it."""
    first, second = neighbours(slurm)
    slurm.simsmi("lose", "0")
    first.end()
    slurm.until(lambda: len(slurm.jobs()) == 1)
    following = slurm.program("--gres=shard:16")
    assert following.code("context(0)") == UNAVAILABLE
    following.end()
    second.end()


def test_a_node_is_prepared_without_it(slurm: held_slurm.HeldSlurm) -> None:
    """What to do is said; jobs on the other card start, and one on this card is told why not."""
    first, second = neighbours(slurm)
    slurm.simsmi("lose", "0")
    done = slurm.prepare()
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"card 0 \(\S+/nvidia0\) does not answer \(.*lost.*reset the card", done.stderr
    )
    assert second.code("alloc(GIB)") == 0
    assert slurm.srun("--gres=shard:8", "echo", "ran", user="daemon").stdout == "ran\n"
    first.end()
    refused = slurm.srun("--gres=shard:16", "echo", "ran")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "card 0 is not in the table of cards (it may be lost, or" in refused.stderr

    slurm.simsmi("heal", "0")
    assert slurm.prepare().stderr == ""
    assert slurm.srun("--gres=shard:16", "echo", "ran").stdout == "ran\n"
    second.end()


def test_the_prolog_prepares_for_the_other_card(slurm: held_slurm.HeldSlurm) -> None:
    """As when the node was started anew, and one card did not come back."""
    slurm.simsmi("lose", "0")
    whole = slurm.program("--gres=gpu:1")  # has the card that is lost
    (slurm.fences / "cards").unlink()
    assert slurm.srun("--gres=shard:8", "echo", "ran").stdout == "ran\n"
    whole.end()


def test_a_node_without_any_card_is_not_prepared(slurm: held_slurm.HeldSlurm) -> None:
    """The table that is there stays."""
    before = (slurm.fences / "cards").read_text()
    for card in ("0", "1"):
        slurm.simsmi("lose", card)
    done = slurm.prepare()
    assert done.returncode != 0
    assert "no card answers (card 0: GPU is lost; reset the card or reboot" in done.stderr
    assert (slurm.fences / "cards").read_text() == before
