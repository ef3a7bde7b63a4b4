"""A job with parts of several cards, as Slurm gives them since 23.11: each is held by itself.

Only a newer Slurm than the machine's does it: `make newer-slurm` runs these tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import leaving_out
from tests.native import fenced
from tests.slurm import held_slurm, real_slurm

pytestmark = [
    leaving_out.needs_root,
    pytest.mark.skipif(real_slurm.TREE is None, reason="only in `make newer-slurm`"),
]

GIB = 1 << 30
CONTEXT = fenced.CONTEXT_BYTES
SELECTION = "CR_Core,MULTIPLE_SHARING_GRES_PJ"


@pytest.fixture(scope="module")
def slurm() -> Iterator[held_slurm.HeldSlurm]:
    """Two cards of 16 GiB with 16 shards each."""
    with held_slurm.opened("2x16GiB", selection=SELECTION) as running:
        yield running


@pytest.fixture(autouse=True)
def calm(slurm: held_slurm.HeldSlurm) -> Iterator[None]:
    """No job of one test runs in the next."""
    yield
    slurm.end_jobs()
    slurm.until(lambda: not slurm.jobs())


def test_each_part_is_held_to_the_byte(slurm: held_slurm.HeldSlurm) -> None:
    """Twenty shards are one whole card and a quarter of the other."""
    program = slurm.program("--gres=shard:20")
    assert program("os.environ['CUDA_VISIBLE_DEVICES']") == "0,1"
    assert program("[call('cuInit', 0), visible_devices()][1]") == 2
    for card, gib in enumerate((16, 4)):
        program(f"context({card})")
        assert program(f"[total_memory({card}), memory_info()[1]]") == [gib * GIB] * 2
        assert program.code(f"alloc({gib} * GIB)") == fenced.OUT_OF_MEMORY
        assert program.code(f"alloc({gib * GIB - CONTEXT})") == 0
        assert program.code("alloc(1)") == fenced.OUT_OF_MEMORY


def test_another_job_has_the_rest_of_the_second_card(slurm: held_slurm.HeldSlurm) -> None:
    """And sees that one alone."""
    first, second = (
        slurm.program("--gres=shard:20"),
        slurm.program("--gres=shard:12", user="daemon"),
    )
    first("context(1)")
    assert first.code(f"alloc({4 * GIB - CONTEXT})") == 0
    second("context(0)")
    assert second("[visible_devices(), total_memory(0)]") == [1, 12 * GIB]
    assert second.code(f"alloc({12 * GIB - CONTEXT})") == 0


def test_a_batch_script_and_its_steps_have_both(slurm: held_slurm.HeldSlurm) -> None:
    """The step of a script has what the script has."""
    script = slurm.folder / "both.sh"
    script.write_text(
        "#!/bin/sh\necho $CUDA_VISIBLE_DEVICES\nsrun --chdir=/ sh -c 'echo $CUDA_VISIBLE_DEVICES'\n"
    )
    job = slurm.submit(script, "--gres=shard:20")
    slurm.until(lambda: slurm.output(job).count("\n") == 2)
    assert slurm.output(job) == "0,1\n0,1\n"


def test_what_was_used_is_known_of_each_card(slurm: held_slurm.HeldSlurm) -> None:
    """In the order of Slurm's numbers."""
    program = slurm.program("--gres=shard:20")
    program("context(1); alloc(GIB)")
    [job] = slurm.jobs()
    program.end()
    slurm.until(lambda: not slurm.jobs())
    [use] = slurm.uses(job)
    assert [(card["quota_bytes"], card["peak_bytes"]) for card in use["cards"]] == [
        (16 * GIB, 0),
        (4 * GIB, GIB + CONTEXT),
    ]
