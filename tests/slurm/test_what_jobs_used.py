"""The log of what jobs used, and the end of a job on a node."""

from __future__ import annotations

import pathlib
import threading

import pytest

from partage.fence.store import layout, limits, locks, roots, tenants
from partage.slurm.jobs import job_end, job_usage
from tests.local import sites

UUID = "GPU-00000000-0000-0000-0000-000000000001"


def use(job: int, ended_s: int = 0) -> job_usage.JobUse:
    """A record."""
    return job_usage.JobUse(job=job, uid=1, node="n", ended_s=ended_s)


def test_records_are_found_by_job(tmp_path: pathlib.Path) -> None:
    """All of one that was requeued, in order."""
    for job, ended_s in ((1, 10), (2, 20), (1, 30)):
        job_usage.append(tmp_path / "log", use(job, ended_s))
    assert [use.ended_s for use in job_usage.of_job(tmp_path / "log", 1)] == [10, 30]
    assert job_usage.of_job(tmp_path / "log", 3) == []
    assert job_usage.of_job(tmp_path / "none", 1) == []


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ("12_3", "12_3 has a number of its own, which `sacct -X -j 12_3 -o JobIDRaw` shows"),
        ("12+1", "12+1 has a number of its own, which "),
        ("1_2_3", "'1_2_3' is not the number of a job"),
        ("abc", "'abc' is not the number of a job"),
        ("0", "'0' is not the number of a job"),
        ("99999999999", "is not the number of a job"),
        ("124", "nothing is known of job 124 on this node; ask on the node where it ran"),
    ],
)
def test_a_job_that_is_asked_for_wrongly(
    site: sites.Site, tmp_path: pathlib.Path, job: str, says: str
) -> None:
    """Nobody is told of job 123 who asked for a part of an array."""
    job_usage.append(tmp_path / "log", use(123))
    done = site.partage("slurm", "usage", job, "--log-folder", tmp_path / "log")
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_half_a_line_hides_nothing(tmp_path: pathlib.Path) -> None:
    """One who was killed while it wrote."""
    job_usage.append(tmp_path, use(1))
    path = tmp_path / "usage.jsonl"
    path.write_bytes(path.read_bytes() + b'{"job":2,"ui')
    job_usage.append(tmp_path, use(3))
    assert [len(job_usage.of_job(tmp_path, job)) for job in (1, 2, 3)] == [1, 0, 1]


def test_the_log_is_bounded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files, and the older half goes."""
    monkeypatch.setattr(job_usage, "_MOST_BYTES", 1000)
    for job in range(200):
        job_usage.append(tmp_path, use(job))
    assert sum(path.stat().st_size for path in tmp_path.glob("usage*")) < 3000
    assert job_usage.of_job(tmp_path, 199)
    assert not job_usage.of_job(tmp_path, 0)


def test_many_jobs_end_at_once(tmp_path: pathlib.Path) -> None:
    """Each has its line."""
    writers = [
        threading.Thread(target=job_usage.append, args=(tmp_path, use(job))) for job in range(1, 33)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert all(job_usage.of_job(tmp_path, job) for job in range(1, 33))


@pytest.fixture
def root(tmp_path: pathlib.Path) -> roots.Root:
    """With the tenant of job 7."""
    root = roots.prepare(tmp_path / "root")
    card = limits.CardLimits(uuid=UUID, memory_bytes=1 << 30)
    tenants.create(root, job_end.tenant_name(7), limits.Limits((card,)))
    return root


def test_a_job_is_written_down_and_removed(root: roots.Root, tmp_path: pathlib.Path) -> None:
    """Once: its number may come again."""
    assert job_end.finish(root, 7, tmp_path / "log", node="n1", now=lambda: 12.5)
    assert not job_end.finish(root, 7, tmp_path / "log", node="n1")
    [record] = job_usage.of_job(tmp_path / "log", 7)
    assert (record.node, record.ended_s, record.cards[0].uuid) == ("n1", 12, UUID)
    assert tenants.names(root) == []


def test_a_region_that_a_job_damaged_is_removed_all_the_same(
    root: roots.Root, tmp_path: pathlib.Path
) -> None:
    """And the record says why nothing is known."""
    (root.tenants / "job-7" / "region").write_bytes(b"mine")
    assert job_end.finish(root, 7, tmp_path / "log", node="n1")
    [record] = job_usage.of_job(tmp_path / "log", 7)
    assert record.cards == ()
    assert "has only 4 bytes" in record.problem
    assert tenants.names(root) == []


def test_a_log_that_cannot_be_written_keeps_no_tenant(
    root: roots.Root, tmp_path: pathlib.Path
) -> None:
    """What the job used is still known to who asked, and so is why the log does not have it."""
    (tmp_path / "log").touch()
    ending = job_end.finish(root, 7, tmp_path / "log", node="n1")
    assert ending is not None
    assert ending.not_logged == f"{tmp_path}/log cannot be written (File exists)"
    assert ending.use.cards[0].uuid == UUID
    assert tenants.names(root) == []


def test_one_that_does_not_end_is_not_waited_for_without_end(
    root: roots.Root, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm says that the job is over."""
    monkeypatch.setattr(job_end, "_PATIENCE_S", 0.2)
    with (root.tenants / "job-7" / "region").open("r+b") as region:
        assert locks.take(region.fileno(), layout.SLOTS - 1)
        assert job_end.finish(root, 7, tmp_path / "log", node="n1")
    assert tenants.names(root) == []
