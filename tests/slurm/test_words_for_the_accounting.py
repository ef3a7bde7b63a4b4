"""What a node says of a job in the accounting, and how long it tries to."""

from __future__ import annotations

import pytest

from partage.slurm.jobs import job_accounting, job_usage
from tests.slurm import configurations

CARD = job_usage.CardUse(
    uuid="GPU-1",
    quota_bytes=8 << 30,
    peak_bytes=(7 << 30) + (1 << 20),
    refused=2,
    busy_ns=812_400_000_000,
    throttled_ns=30_100_000_000,
    launches=9,
)
USE = job_usage.JobUse(job=7, uid=1, node="Gpu7", ended_s=1, cards=(CARD,))
WORDS = "partage:gpu7:peak_mib=7169,quota_mib=8192,refused=2,time_s=812.4,waited_s=30.1"
OTHER = "partage:gpu8:unknown"


def use(*cards: job_usage.CardUse, problem: str = "") -> job_usage.JobUse:
    """Of the same job."""
    return job_usage.JobUse(job=7, uid=1, node="gpu7", ended_s=1, cards=cards, problem=problem)


def test_words_have_no_blanks() -> None:
    """Nor quotes or capitals, which sacctmgr would change."""
    assert job_accounting.words(USE) == WORDS
    assert job_accounting.words(use(CARD, CARD)).endswith("refused=4,time_s=1624.8,waited_s=60.2")
    assert job_accounting.words(use(problem="damaged")) == "partage:gpu7:unknown"


@pytest.mark.parametrize(
    ("comment", "merged"),
    [
        ("", WORDS),
        (WORDS, WORDS),
        (OTHER, f"{OTHER} {WORDS}"),
        (f"partage:gpu7:unknown {OTHER}", f"{OTHER} {WORDS}"),
        ("of the  site, a=1", f"of the  site, a=1 {WORDS}"),
        ("Of the site", None),
        ('{"a": 1}', None),
        ("it's", None),
        ("two\nlines", None),
        ("x" * 17_000, None),
    ],
)
def test_a_comment_with_the_words_of_a_node(comment: str, merged: str | None) -> None:
    """What others wrote is kept, or nothing is written at all."""
    assert job_accounting.merged(comment, USE) == merged


@pytest.mark.parametrize(
    ("environ", "turn"),
    [
        ({}, job_accounting.Turn()),
        ({"SLURM_NODELIST": "gpu7"}, job_accounting.Turn()),
        ({"SLURM_NODELIST": "gpu[5-8]"}, job_accounting.Turn(2, alone=False)),
        ({"SLURM_JOB_NODELIST": "gpu[7-8]"}, job_accounting.Turn(0, alone=False)),
        ({"SLURM_JOB_NODELIST": "gpu["}, job_accounting.Turn(0, alone=False)),
    ],
)
def test_the_turn_of_a_node(environ: dict[str, str], turn: job_accounting.Turn) -> None:
    """By its place in the list that Slurm tells an Epilog."""
    assert job_accounting.turn("gpu7", environ) == turn


def test_where_there_is_accounting() -> None:
    """Where slurm.conf has none, nothing is questions."""
    daemon = configurations.document("slurm", "AccountingStorageType=accounting_storage/slurmdbd\n")
    assert job_accounting.is_there(daemon)
    assert not job_accounting.is_there(configurations.document("slurm", "ClusterName=x\n"))


class Clock:
    """Time that goes by while one waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def pause(self, seconds: float) -> None:
        """Wait."""
        self.now += seconds


def test_a_node_that_is_always_overwritten_gives_up() -> None:
    """The node gets no other job while it tries."""
    clock, writes = Clock(), list[str]()

    def ask(program: str, *words: str, timeout_s: float) -> str:
        clock.now += 0.1
        if program == "sacctmgr":
            writes.append(words[-1])
        return "7\x1f7\x1fpartage:gpu8:unknown\n" if program == "sacct" else ""

    turn = job_accounting.Turn(position=2, alone=False)
    done = job_accounting.record(USE, turn, ask=ask, pause=clock.pause, clock=lambda: clock.now)

    assert not done
    assert len(writes) > 3
    assert clock.now < 15
    assert set(writes) == {f"admincomment={OTHER} {WORDS}"}


def test_a_record_that_comes_late_is_waited_for() -> None:
    """slurmctld sends it to the database when it can."""
    clock, questions = Clock(), list[str]()
    answers = iter(["", "8\x1f8\x1f\n", "7\x1f6_2\x1f\n"])

    def ask(program: str, *words: str, timeout_s: float) -> str:
        questions.append(f"{program} {' '.join(words)}")
        return next(answers) if program == "sacct" else ""

    done = job_accounting.record(
        USE, job_accounting.Turn(), ask=ask, pause=clock.pause, clock=lambda: clock.now
    )

    assert done
    assert questions[-1] == (
        f"sacctmgr --immediate modify job where jobid=6_2 set admincomment={WORDS}"
    )
    assert len(questions) == 4
