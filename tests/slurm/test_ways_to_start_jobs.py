"""Every way in which Slurm starts a program: it is behind the fence, with the job's quota.

This Slurm has `PrologFlags=Contain`, as sites have it whose users log in to nodes: each job has an
extern step, and the Prolog runs when a job is given its nodes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests import leaving_out
from tests.native import fenced
from tests.slurm import held_slurm, taking_jobs

pytestmark = leaving_out.needs_root

GIB = 1 << 30
SEES = "[total_memory(0), memory_info()[1]]"
LIMITS = "/etc/partage/fence/limits"
SETTINGS = (
    "PrologFlags=Contain",
    "LaunchParameters=use_interactive_step",
    'InteractiveStepOptions="--interactive --preserve-env $SHELL"',  # without a terminal
)


@pytest.fixture(scope="module")
def running() -> Iterator[held_slurm.HeldSlurm]:
    """Two nodes with two cards of 16 GiB each."""
    with held_slurm.opened("2x16GiB", nodes=2, settings=SETTINGS) as slurm:
        yield slurm


@pytest.fixture
def slurm(running: held_slurm.HeldSlurm) -> Iterator[held_slurm.HeldSlurm]:
    """No job of one test runs in the next, and nothing is left of it."""
    yield running
    running.end_jobs()
    running.until(lambda: not any(node.jobs() for node in running.held_nodes))


@pytest.fixture
def takers(slurm: held_slurm.HeldSlurm) -> Iterator[taking_jobs.Takers]:
    """Programs that take all they are given, until the test has ended."""
    made = taking_jobs.Takers(slurm)
    yield made
    made.end()


def salloc(slurm: held_slurm.HeldSlurm, *command: str) -> subprocess.CompletedProcess[str]:
    """An allocation on the first node, until the command has ended that has it."""
    words = ["--quiet", "--chdir=/", "--gres=shard:4", f"--nodelist={slurm.node}", *command]
    return slurm.inside(*held_slurm.as_user(), "salloc", *words)


def is_held(program: fenced.Process, gib: int) -> bool:
    """Whether so much of a card is all that a program gets."""
    program("context(0)")
    refused = program.code(f"alloc({gib} * GIB)") == fenced.OUT_OF_MEMORY
    return refused and program(SEES) == [gib * GIB, gib * GIB]


def test_a_step_in_an_allocation(slurm: held_slurm.HeldSlurm) -> None:
    """`salloc` starts the step, as a user would by hand."""
    allocation = ("salloc", "--quiet", "--chdir=/", "--gres=shard:4")
    program = slurm.started(*allocation, "srun", "--chdir=/", *slurm.client)
    assert is_held(program, 4)
    program.end()


def test_steps_of_an_allocation_one_after_the_other(slurm: held_slurm.HeldSlurm) -> None:
    """The fence stays between two steps, as the job does."""
    done = salloc(slurm, "sh", "-c", f"for i in 1 2; do srun --chdir=/ stat -c %i {LIMITS}; done")
    first, second = done.stdout.split()
    assert first == second


def test_an_interactive_step(slurm: held_slurm.HeldSlurm) -> None:
    """`salloc` without a command opens a shell on the node, which has what the job has."""
    shell = slurm.folder / "shell"
    shell.write_text(f"#!/bin/sh\nexec {' '.join(slurm.client)}\n")
    shell.chmod(0o755)
    words = ("salloc", "--quiet", "--chdir=/", "--gres=shard:4")
    program = slurm.started(*words, SHELL=str(shell), SLURM_STEP_GPUS="1")
    assert is_held(program, 4)
    [job] = slurm.jobs()
    assert slurm.used(job).uuid == slurm.devices[0].uuid
    assert (slurm.root.tenants / f"job-{job}" / "in-full").exists()
    program.end()


def test_a_terminal_that_is_attached_starts_nothing(
    slurm: held_slurm.HeldSlurm, takers: taking_jobs.Takers
) -> None:
    """`sattach` shows what a step prints; the step is held as before."""
    talk = f"while [ ! -e {takers.folder}/end ]; do ls {LIMITS}; sleep 0.1; done"
    job = slurm.submit(takers.script_of(f"srun --chdir=/ sh -c '{talk}'"), "--gres=shard:2")
    slurm.until(lambda: LIMITS in slurm.output(job))
    with slurm.private.spawn(*held_slurm.as_user(), "sattach", f"{job}.0") as attached:
        assert attached.stdout is not None
        assert attached.stdout.readline() == f"{LIMITS}\n".encode()
        assert slurm.used(job).quota_bytes == 2 * GIB
        takers.end()
        attached.communicate(timeout=held_slurm.PATIENCE_S)
    slurm.until_no_job()  # 24.11 may hang if a job is cancelled while it ends


def test_a_heterogeneous_job(slurm: held_slurm.HeldSlurm, takers: taking_jobs.Takers) -> None:
    """Each of its parts is a job for Slurm, and has a quota of its own."""
    first = slurm.submit(
        takers.script_of(
            *("#SBATCH --gres=shard:6", "#SBATCH hetjob", "#SBATCH --gres=shard:3"),
            f"srun --chdir=/ --het-group=0,1 {' '.join(takers.command)}",
        )
    )
    answers = takers.wait(2)
    assert sorted(answer["given"] for answer in answers) == [2, 5]
    quotas = {job: node.used(job).quota_bytes for node in slurm.held_nodes for job in node.jobs()}
    assert quotas == {first: 6 * GIB, first + 1: 3 * GIB}


def test_a_heterogeneous_step(slurm: held_slurm.HeldSlurm, takers: taking_jobs.Takers) -> None:
    """One `srun` that asks for two different parts, with a colon between."""
    takers.end()  # as soon as they have what they get
    part = ["--chdir=/", *takers.command]
    done = slurm.srun("--gres=shard:6", *takers.command, ":", "--gres=shard:3", *part)
    assert sorted(answer["given"] for answer in takers.answers()) == [2, 5], done.stderr


def test_what_runs_before_and_after_a_task(slurm: held_slurm.HeldSlurm) -> None:
    """Users name these programs, and slurmstepd starts the second itself: both are fenced."""
    folder = taking_jobs.shared_folder(slurm)
    options = []
    for name in ("prolog", "epilog"):
        script = slurm.folder / f"{name}.sh"
        script.write_text(
            "#!/bin/sh\n"
            f"exec >{folder}/{name}-$$ 2>/dev/null\n"
            f"ls {LIMITS}\ncat /etc/ld.so.preload\nunshare --user true && echo escaped\nexit 0\n"
        )
        script.chmod(0o755)
        options.append(f"--task-{name}={script}")
    done = slurm.srun("--gres=shard:4", "--ntasks=2", "--overcommit", *options, "true")
    assert done.returncode == 0, done.stderr
    outputs = {path.name: path.read_text() for path in folder.iterdir()}
    assert sorted(name.partition("-")[0] for name in outputs) == ["epilog"] * 2 + ["prolog"] * 2
    assert set(outputs.values()) == {f"{LIMITS}\n/etc/partage/fence/libpartage.so\n"}


def test_a_task_that_is_killed_gives_back_what_it_had(slurm: held_slurm.HeldSlurm) -> None:
    """To the other steps of the job, which go on."""
    script = slurm.folder / "waits.sh"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    job = slurm.submit(script, "--gres=shard:8", "--overcommit", "--ntasks=2")
    slurm.until(lambda: slurm.jobs() == [job])
    step = ("srun", f"--jobid={job}", "--overlap", "--ntasks=1", "--chdir=/", *slurm.client)
    first, second = slurm.started(*step), slurm.started(*step)
    first("context(0); alloc(7 * GIB)")
    second("context(0)")
    assert second.code("alloc(GIB)") == fenced.OUT_OF_MEMORY
    slurm.inside("kill", "-9", str(first("os.getpid()")))
    slurm.until(lambda: second.code("alloc(GIB)") == 0)


def test_a_job_without_a_step_leaves_nothing(slurm: held_slurm.HeldSlurm) -> None:
    """The Prolog has made the node ready by then; there is no fence, and the Epilog needs none."""
    table = slurm.fences / "cards"
    table.unlink()
    assert salloc(slurm, "true").returncode == 0
    slurm.until(table.exists)
    assert slurm.jobs() == []


def test_the_extern_step_is_left_alone(slurm: held_slurm.HeldSlurm) -> None:
    """It has no task; the job's own steps are held beside it."""
    program = slurm.program("--gres=shard:4", f"--nodelist={slurm.node}")
    [job] = slurm.jobs()
    assert f"StepId={job}.extern" in slurm.inside("scontrol", "show", "step").stdout
    assert is_held(program, 4)
    program.end()
