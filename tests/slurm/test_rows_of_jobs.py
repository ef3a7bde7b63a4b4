"""Jobs and their steps as rows: what is read of a folder of fences, and what of it is shown."""

from __future__ import annotations

import os
import pathlib

import pytest

from partage.cli.display import machine_page, pages
from partage.cli.sources import slurm_node
from partage.core import cards, fleet
from partage.fence import groups, processes
from partage.fence.store import layout, limits, roots, shared_files, tenants
from partage.local.machine import machine, other_tenants
from partage.local.queue import decision
from partage.local.view import job_rows, views
from partage.slurm.jobs import job_processes, job_tenants
from tests.cli import ps_views

GIB, MIB = 1 << 30, 1 << 20
BATCH = 0xFFFFFFFB + 1  # the group of the script


@pytest.fixture
def root(tmp_path: pathlib.Path) -> roots.Root:
    """A folder of fences."""
    return roots.prepare(tmp_path / "slurm")


def _job(root: roots.Root, number: int, gib: int = 8) -> tenants.Tenant:
    card = limits.CardLimits(
        uuid=ps_views.FIRST,
        memory_bytes=gib * GIB,
        mode=limits.Mode.FIXED,
        share_millionths=500_000,
    )
    return tenants.create(root, f"job-{number}", limits.Limits((card,)))


def _step(tenant: tenants.Tenant, number: int, gib: int, percent: int = 0) -> None:
    content = shared_files.blank(layout.GroupLimits)
    content.number = number
    content.card[0].memory_bytes, content.card[0].share = gib * GIB, percent * 10_000
    region = shared_files.blank(layout.GroupRegion)
    region.card[0].peak_bytes, region.card[0].refused = number % 100 * MIB, 3
    shared_files.write(groups.limits_path(tenant.folder, number), content, mode=0o644)
    shared_files.write(groups.region_path(tenant.folder, number), region, mode=0o600)


def _rows(root: roots.Root, *present: machine.Present) -> list[views.TenantView]:
    others = slurm_node.tenants({}, root.path)()
    this_machine = machine.Machine(cards.Node(name="n", cards=()), (), ())
    by_tenant = {name: tuple(present) for name in others.tenants}
    now = decision.Survey((), this_machine, fleet.standard(), [], others, by_tenant)
    return [*job_rows.rows(now, {ps_views.FIRST: 3})]


def test_a_step_has_a_row_behind_its_jobs(root: roots.Root) -> None:
    """With what it may have and what it had at most; a share of time only where it has its own."""
    tenant = _job(root, 7)
    _step(tenant, 1, 2, percent=12)
    _step(tenant, 12, 8)
    job, first, other = _rows(root)
    assert (job.job, job.step, job.memory_mib, job.compute_percent) == (7, None, 8192, 50)
    assert (first.job, first.step, first.memory_mib, first.compute_percent) == (7, "0", 2048, 12)
    assert (first.peak_bytes, first.refused, first.busy_ns) == (MIB, 3, None)
    assert (other.step, other.memory_mib, other.compute_percent) == ("11", 8192, 50)
    assert (job.index, first.index) == (3, 3)
    assert len({row.key for row in (job, first, other)}) == 3


def test_steps_without_a_number_have_a_name() -> None:
    """As Slurm itself calls them."""
    assert job_processes.step_name(BATCH) == "batch"
    assert job_processes.step_name(1) == "0"


def test_a_region_that_may_not_be_read_leaves_the_limits(root: roots.Root) -> None:
    """Memory is then the driver's word, and the rest is not known."""
    tenant = _job(root, 7)
    tenant.region_path.unlink()
    tenant.region_path.mkdir()  # root could read a file
    present = machine.Present(ps_views.FIRST, os.getpid(), 5 * MIB)
    elsewhere = machine.Present(ps_views.SECOND, os.getpid(), 9 * MIB)
    (row,) = _rows(root, present, elsewhere)
    assert (row.memory_mib, row.used_bytes, row.peak_bytes) == (8192, 5 * MIB, None)
    assert row.processes == (os.getpid(),)
    (row,) = _rows(root, present, machine.Present(ps_views.FIRST, 1, None))
    assert row.used_bytes is None


def test_without_a_folder_of_fences_there_are_no_jobs(tmp_path: pathlib.Path) -> None:
    """Nor where it is something else; and simulated cards are not of the machine's Slurm."""
    (tmp_path / "file").touch()
    assert slurm_node.tenants({}, tmp_path / "none")().tenants == {}
    assert slurm_node.tenants({}, tmp_path / "file")().tenants == {}
    made = roots.prepare(tmp_path / "slurm")
    _job(made, 7)
    assert list(slurm_node.tenants({}, made.path)().tenants) == ["job-7"]
    assert slurm_node.tenants({"PARTAGE_SIMULATE": "16GiB"}, made.path)().tenants == {}


def test_what_is_no_job_is_left_out(root: roots.Root) -> None:
    """And so is one that is damaged."""
    _job(root, 7)
    _job(root, 8).limits_path.write_bytes(b"")
    card = limits.CardLimits(uuid=ps_views.FIRST)
    tenants.create(root, "job-x", limits.Limits((card,)))
    assert list(job_tenants.read(root.path).by_job) == [7]


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("/slurm/uid_1000/job_7/step_0", (7, "0")),
        ("/slurm_gpu7/uid_1000/job_7/step_batch/task_0", (7, "batch")),
        ("/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", (7, "0")),
        ("/system.slice/gpu7_slurmstepd.scope/job_7/step_extern/user", (7, "extern")),
        ("/slurm/uid_1000/job_7", (7, "")),
        ("/pod/slurm/uid_0/job_7/step_0/slurm/uid_0/job_8/step_1", (7, "0")),
        ("/", None),
        ("/user.slice/slurmx/job_7/step_0", None),
        ("/slurm/uid_1000/job_x/step_0", None),
        ("/kubepods/pod1/job_7/step_0", None),
    ],
)
def test_the_step_of_a_process_is_in_its_cgroup(path: str, step: tuple[int, str] | None) -> None:
    """In either version of cgroups; the first job of a path is the one."""
    own_step = job_processes.step_of(("/", path))
    assert own_step == (job_processes.Step(*step) if step else None)


def test_a_process_of_another_user_is_not_the_jobs(root: roots.Root) -> None:
    """Everybody may name a cgroup like one of Slurm's."""
    _job(root, 7)
    held = job_tenants.read(root.path)
    own = processes.Facts(
        pid=os.getpid(),
        started_ticks=0,
        inner_pid=1,
        cgroups=("/slurm/uid_5/job_7/step_0",),
        real_uid=os.geteuid(),
    )
    assert held.whose(own) == "job-7"
    others = {7: job_tenants.JobTenant(job=7, uid=-2, since=0.0, tenant=held.by_job[7].tenant)}
    assert job_tenants.JobTenants(held.root, others).whose(own) == ""


def test_what_jobs_have_is_granted(root: roots.Root) -> None:
    """Of the cards that are there."""
    _job(root, 7)
    others = slurm_node.tenants({}, root.path)()
    node = cards.Node(name="n", cards=(cards.Card(uuid=ps_views.FIRST, index=3, memory_mib=16384),))
    (grant,) = other_tenants.granted(others, node)
    (share,) = grant.containers[0].shares
    assert (share.index, share.memory_mib, share.compute_percent) == (3, 8192, 50)
    assert [*other_tenants.granted(others, cards.Node(name="n", cards=()))] == []


def _shown(*tenants_shown: views.TenantView) -> list[tuple[str, str, str]]:
    page = machine_page.page(ps_views.view(*tenants_shown), {}, pages.Form.NARROW)
    header = page.tenants.header
    columns = [header.index(name) for name in ("NAME", "ASKED", "STEP")]
    return [tuple(line.cells[i].text for i in columns) for line in page.tenants.lines]  # type: ignore[misc]


def _row(step: str | None, memory_mib: int, job: int | None = 7) -> views.TenantView:
    token = "job-7" if step is None else f"job-7.{step}"
    return ps_views.tenant("job-7", token=token, job=job, step=step, memory_mib=memory_mib)


def test_a_job_with_one_step_is_one_line() -> None:
    """If the step has all of it; else each has a line, the job first."""
    assert _shown(_row(None, 4096), _row("0", 4096)) == [("job-7", "4Gi", "0")]
    halved = [("job-7", "4Gi", "-"), ("job-7", "2Gi", "0")]
    assert _shown(_row("0", 2048), _row(None, 4096)) == halved
    both = [("job-7", "4Gi", "-"), ("job-7", "4Gi", "0"), ("job-7", "1Gi", "batch")]
    assert _shown(_row(None, 4096), _row("0", 4096), _row("batch", 1024)) == both


def test_columns_of_programs_stay_where_they_are() -> None:
    """The step comes behind them, and only where there is a job."""
    for form, names in (
        (pages.Form.NARROW, machine_page.TENANT_NARROW),
        (pages.Form.USUAL, machine_page.TENANT),
    ):
        alone = machine_page.page(ps_views.view(ps_views.tenant()), {}, form).tenants
        both = machine_page.page(ps_views.view(ps_views.tenant(), _row(None, 1)), {}, form).tenants
        assert (alone.header, both.header) == (names, (*names, "STEP"))
        assert {len(line.cells) for line in both.lines} == {len(names) + 1}


def test_the_heading_names_the_cards_of_slurm() -> None:
    """And nothing, where there are none."""
    own, other = ps_views.card(0, managed_by="slurm"), ps_views.card(1)
    page = machine_page.page(ps_views.view(cards=(own, other)), {})
    assert page.about.endswith("(shared)  Slurm has card 0")
    assert "Slurm" not in machine_page.page(ps_views.view(), {}).about
