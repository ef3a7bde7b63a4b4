"""What jobs used, in the AdminComment of a real slurmdbd with a MariaDB of its own."""

from __future__ import annotations

import concurrent.futures
import functools
import json
from collections.abc import Iterator

import pytest

from partage.slurm import slurm_programs
from partage.slurm.jobs import job_accounting, job_usage
from tests.native import fenced
from tests.slurm import held_slurm

NODES = ("n1", "n2", "n3")


@pytest.fixture(scope="module")
def slurm() -> Iterator[held_slurm.HeldSlurm]:
    """One node with a card of 16 GiB, and accounting."""
    with held_slurm.opened("16GiB", accounting=True) as slurm:
        yield slurm


def comment(slurm: held_slurm.HeldSlurm, job: str) -> str:
    """As sacct shows it."""
    words = ("--allocations", "--noheader", "--parsable2", "--format=AdminComment")
    done = slurm.inside("sacct", f"--jobs={job}", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def ended(slurm: held_slurm.HeldSlurm, *words: str) -> str:
    """The number of a job that the accounting knows, and that has left nothing there."""
    done = slurm.inside("sbatch", "--parsable", "--output=/dev/null", *words, "--wrap=true")
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    slurm.until(lambda: "COMPLETED" in state(slurm, job))
    return job


def state(slurm: held_slurm.HeldSlurm, job: str) -> str:
    """Of a job, as sacct shows it."""
    words = ("--allocations", "--noheader", "--parsable2", "--format=State")
    return slurm.inside("sacct", f"--jobs={job}", *words).stdout


def queued(slurm: held_slurm.HeldSlurm, job: str) -> str:
    """The state of a job, as squeue shows it."""
    return slurm.inside("squeue", "--noheader", f"--jobs={job}", "--format=%t").stdout.strip()


def test_sacct_shows_what_a_job_used(slurm: held_slurm.HeldSlurm) -> None:
    """From the Epilog of a held job; the node's log has the same."""
    program = slurm.program("--gres=shard:8")
    job = slurm.until(slurm.jobs)[0]
    program("context(0)")
    assert program.code("alloc(3 << 30)") == 0
    assert program.code("alloc(8 << 30)") == fenced.OUT_OF_MEMORY
    program.end()
    slurm.until(lambda: slurm.uses(job))

    text = slurm.until(lambda: comment(slurm, str(job)))

    mark, node, figures = text.split(":")
    assert (mark, node) == ("partage", slurm.node)
    values = dict(figure.split("=") for figure in figures.split(","))
    assert values.keys() == {"peak_mib", "quota_mib", "refused", "time_s", "waited_s"}
    assert (values["quota_mib"], values["refused"]) == ("8192", "1")
    assert 3072 <= int(values["peak_mib"]) < 8192


def recorded(slurm: held_slurm.HeldSlurm, job: str, node: str, turn: job_accounting.Turn) -> bool:
    """What the Epilog of a node does, with the questions asked beside the daemons."""
    ask = functools.partial(_asked, slurm)
    use = job_usage.JobUse(job=int(job), uid=0, node=node, ended_s=1)
    return job_accounting.record(use, turn, ask=ask)


def _asked(slurm: held_slurm.HeldSlurm, *command: str, timeout_s: float) -> str:
    assert timeout_s < held_slurm.PATIENCE_S
    done = slurm.inside(*command)
    if done.returncode:
        raise slurm_programs.SlurmError(done.stderr)
    return done.stdout


def test_nodes_of_a_job_write_at_once(slurm: held_slurm.HeldSlurm) -> None:
    """Each finds its words in the end: who was overwritten writes again."""
    job = ended(slurm)
    turn = job_accounting.Turn(position=0, alone=False)  # the worst: nobody waits for a turn

    with concurrent.futures.ThreadPoolExecutor() as threads:
        answers = [threads.submit(recorded, slurm, job, node, turn) for node in NODES]

    assert [answer.result() for answer in answers] == [True] * 3
    assert sorted(comment(slurm, job).split()) == [f"partage:{node}:unknown" for node in NODES]


def test_a_comment_of_the_site_is_kept(slurm: held_slurm.HeldSlurm) -> None:
    """As it is; where sacctmgr would change it, nothing is written."""
    plain, other = ended(slurm), ended(slurm)
    words = ("--parsable", "--hold", "--output=/dev/null", "--wrap=true")
    capital = slurm.inside("sbatch", *words).stdout.strip()
    slurm.inside("scontrol", "update", f"JobId={capital}", 'AdminComment={"Of": "the site"}')
    slurm.inside("scontrol", "release", capital)
    slurm.until(lambda: "COMPLETED" in state(slurm, capital))
    modify = ("sacctmgr", "-i", "modify", "job", "where", f"jobid={plain}")
    slurm.inside(*modify, "set", "admincomment=of the site, ticket=12")

    answers = [recorded(slurm, job, "n1", job_accounting.Turn()) for job in (plain, capital)]

    assert answers == [True, False]
    assert comment(slurm, plain) == "of the site, ticket=12 partage:n1:unknown"
    assert comment(slurm, capital) == '{"Of": "the site"}'
    assert comment(slurm, other) == ""


def test_a_job_of_an_array(slurm: held_slurm.HeldSlurm) -> None:
    """The last one has the number of the array, and the others are not touched."""
    array = ended(slurm, "--array=1-2")
    slurm.until(lambda: state(slurm, array).split() == ["COMPLETED"] * 2)

    assert recorded(slurm, array, "n1", job_accounting.Turn())

    assert comment(slurm, f"{array}_1") == ""
    assert comment(slurm, f"{array}_2") == "partage:n1:unknown"


def test_a_job_that_was_requeued(slurm: held_slurm.HeldSlurm) -> None:
    """Each of its runs has a record, and what was used in it."""
    words = ("--parsable", "--requeue", "--output=/dev/null", "--wrap=sleep 600")
    job = slurm.inside("sbatch", *words).stdout.strip()
    slurm.until(lambda: "RUNNING" in state(slurm, job))
    slurm.inside("scontrol", "requeue", job)
    slurm.until(lambda: "REQUEUED" in state(slurm, job))
    assert recorded(slurm, job, "n1", job_accounting.Turn())
    slurm.until(lambda: queued(slurm, job) == "PD")
    slurm.inside("scontrol", "update", f"JobId={job}", "StartTime=now")
    slurm.until(lambda: "RUNNING" in state(slurm, job))
    slurm.inside("scancel", job)
    slurm.until(lambda: "CANCELLED" in state(slurm, job))

    assert recorded(slurm, job, "n2", job_accounting.Turn())

    words = ("--duplicates", "--allocations", "--noheader", "--format=AdminComment%40")
    both = slurm.inside("sacct", f"--jobs={job}", *words).stdout.split()
    assert both == ["partage:n1:unknown", "partage:n2:unknown"]


def test_accounting_that_does_not_answer(slurm: held_slurm.HeldSlurm) -> None:
    """The job ends all the same, its fence goes, and the log of the node has its use."""
    assert slurm.private.accounting is not None
    slurm.private.accounting.stop_daemon()
    try:
        done = slurm.srun("--gres=shard:4", "true")
        assert done.returncode == 0, done.stderr
        job = slurm.until(lambda: last_job(slurm))
        slurm.until(lambda: slurm.uses(job))
        slurm.until(lambda: not slurm.jobs())
        again = slurm.srun("--gres=shard:16", "true")  # the node is in use
    finally:
        slurm.private.accounting.start_daemon(slurm.private.start_inside)

    assert again.returncode == 0, again.stderr


def last_job(slurm: held_slurm.HeldSlurm) -> int:
    """The newest that the node's log has."""
    lines = (slurm.held_nodes[0].log / "usage.jsonl").read_text().splitlines()
    return int(json.loads(lines[-1])["job"])
