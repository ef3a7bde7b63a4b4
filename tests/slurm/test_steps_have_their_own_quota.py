"""Steps of one job on a real Slurm: each has what it asked for, and together what the job has."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from partage.fence import groups, usage
from partage.fence.store import tenants
from tests import leaving_out
from tests.native import fenced
from tests.slurm import held_slurm

pytestmark = leaving_out.needs_root

GIB = 1 << 30
CONTEXT = fenced.CONTEXT_BYTES
SEES = "[total_memory(0), memory_info()[1]]"


@pytest.fixture(scope="module")
def slurm() -> Iterator[held_slurm.HeldSlurm]:
    """A card of 16 GiB with 16 shards."""
    with held_slurm.opened("1x16GiB") as running:
        yield running


@pytest.fixture
def job(slurm: held_slurm.HeldSlurm) -> Iterator[int]:
    """An allocation of 8 shards without a script, whose steps are started from elsewhere."""
    options = ("--no-shell", "--chdir=/", "--ntasks=4", "--gres=shard:8")
    done = slurm.inside(*held_slurm.as_user("nobody"), "salloc", *options)
    number = re.search(r"job allocation (\d+)", done.stderr)
    assert number, done.stderr
    yield int(number[1])
    slurm.inside("scancel", number[1])
    slurm.until(lambda: not slurm.jobs())


def step(slurm: held_slurm.HeldSlurm, job: int, *words: str) -> fenced.Process:
    """A program in a step of the job, with a context."""
    program = slurm.program(f"--jobid={job}", "--ntasks=1", "--exact", *words)
    program("context(0)")
    return program


def quotas(slurm: held_slurm.HeldSlurm, job: int) -> dict[int, tuple[int, int]]:
    """What each step has, and how much of it it uses."""
    tenant = tenants.read(slurm.root, f"job-{job}")
    return {
        group.number - 1: (group.cards[0].quota_bytes, group.cards[0].used_bytes)
        for group in groups.of_tenant(tenant, usage.counted(tenant))
    }


def asked(slurm: held_slurm.HeldSlurm) -> int:
    """How often the controller was asked about one job."""
    count = re.search(r"REQUEST_JOB_INFO_SINGLE .*count:(\d+)", slurm.inside("sdiag").stdout)
    return int(count[1]) if count else 0


def test_steps_that_asked_for_less_are_held_to_that(slurm: held_slurm.HeldSlurm, job: int) -> None:
    """There is no script on this node, so the controller is asked what the job has in all."""
    before = asked(slurm)
    small = step(slurm, job, "--gres=shard:3")
    assert slurm.used(job).quota_bytes == 3 * GIB  # as far as is known
    assert asked(slurm) == before
    large = step(slurm, job, "--gres=shard:5")
    assert slurm.used(job).quota_bytes == 8 * GIB
    assert asked(slurm) == before + 1
    step(slurm, job, "--overlap", "--gres=shard:8").end()
    assert asked(slurm) == before + 1  # once for the job and node
    assert (small(SEES), large(SEES)) == ([3 * GIB] * 2, [5 * GIB] * 2)
    assert small.code(f"alloc({3 * GIB - CONTEXT})") == 0
    assert small.code("alloc(1)") == fenced.OUT_OF_MEMORY
    assert large.code(f"alloc({5 * GIB - CONTEXT})") == 0
    assert large.code("alloc(1)") == fenced.OUT_OF_MEMORY
    assert quotas(slurm, job) == {0: (3 * GIB, 3 * GIB), 1: (5 * GIB, 5 * GIB)}
    small.end()
    slurm.until(lambda: quotas(slurm, job) == {1: (5 * GIB, 5 * GIB)})


def test_steps_that_overlap_have_no_more_than_their_job(
    slurm: held_slurm.HeldSlurm, job: int
) -> None:
    """Each was given all eight shards, and there are eight."""
    one = step(slurm, job, "--overlap", "--gres=shard:8")
    two = step(slurm, job, "--overlap", "--gres=shard:8")
    assert one.code(f"alloc({6 * GIB})") == 0
    assert two.code(f"alloc({2 * GIB})") == fenced.OUT_OF_MEMORY
    assert two.code(f"alloc({2 * GIB - 2 * CONTEXT})") == 0
    assert slurm.used(job).used_bytes == 8 * GIB


def test_a_step_whose_stepd_was_killed_is_in_nobodys_way(
    slurm: held_slurm.HeldSlurm, job: int
) -> None:
    """Its files stay until the job ends; what it had is free for the next step."""
    first = step(slurm, job, "--gres=shard:8")
    pid = first("os.getpid()")
    assert slurm.inside("pkill", "-9", "-f", rf"slurmstepd.*\[{job}\.0").returncode == 0
    slurm.inside("kill", "-9", str(pid))
    second = step(slurm, job, "--overlap", "--gres=shard:8")
    assert second.code(f"alloc({8 * GIB - CONTEXT})") == 0


def test_a_step_is_told_what_it_has(slurm: held_slurm.HeldSlurm, job: int) -> None:
    """In the words of `partage run`, beside what Slurm tells; a user's own words are replaced."""
    words = ("--gres=shard:2", "--ntasks=1", "env")
    done = slurm.srun(f"--jobid={job}", *words, PARTAGE_MEMORY_BYTES="all", PARTAGE_NAME="me")
    variables = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    uuid = slurm.devices[0].uuid
    assert variables["PARTAGE_MEMORY_BYTES"] == f"{uuid}={2 * GIB}"
    assert variables["PARTAGE_COMPUTE_PERCENT"] == f"{uuid}=12.5"
    assert (variables["PARTAGE_NAME"], variables["PARTAGE_FENCE"]) == (f"job-{job}", "hook")
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["SLURM_SHARDS_ON_NODE"]) == ("0", "2")


def test_a_script_has_what_its_job_has_while_its_steps_have_less(
    slurm: held_slurm.HeldSlurm,
) -> None:
    """Nobody is asked: the script's own variables tell it."""
    before = asked(slurm)
    begin = slurm.folder / "begin"
    script = slurm.folder / "script.sh"
    script.write_text(
        "#!/bin/sh\necho started\n"
        f"while [ ! -e {begin} ]; do sleep 0.1; done\n"
        "srun --overlap --gres=shard:2 sh -c 'echo $PARTAGE_MEMORY_BYTES'\n"
        "echo $PARTAGE_MEMORY_BYTES\n"
    )
    number = slurm.submit(script, "--gres=shard:8")
    slurm.until(lambda: "started" in slurm.output(number))
    assert slurm.used(number).quota_bytes == 8 * GIB
    assert (slurm.root.tenants / f"job-{number}" / "in-full").exists()
    begin.touch()
    uuid = slurm.devices[0].uuid or ""
    said = slurm.until(lambda: slurm.output(number).count(uuid) == 2 and slurm.output(number))
    assert said.split()[1:] == [f"{uuid}={2 * GIB}", f"{uuid}={8 * GIB}"]
    assert asked(slurm) == before
    slurm.until(lambda: not slurm.jobs())
