"""The jobs that a fence holds on this node now, and whose a process is.

All of it is read from the folder of fences, and as far as this user may read it: where there is no
such folder there are no jobs. A job's limits can be read by everybody, its region only by its user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from partage.core import errors
from partage.fence import processes
from partage.fence.store import roots, tenants
from partage.slurm.jobs import job_processes

_PREFIX = "job-"  # as ``native/spank/spank.h`` has it
_NAME = re.compile(rf"{_PREFIX}\d{{1,10}}", re.ASCII)
_WRITTEN_ONCE = "seats-0"  # in a tenant's folder: all else there may change while the job runs


class JobTenant(msgspec.Struct, frozen=True, kw_only=True):
    """A job on this node, and its tenant."""

    job: int
    uid: int
    since: float  # seconds since 1970: when its first task was started here
    tenant: tenants.Tenant


class JobTenants(msgspec.Struct, frozen=True):
    """Those of one moment."""

    root: roots.Root | None = None
    by_job: Mapping[int, JobTenant] = {}

    def whose(self, process: processes.Facts) -> str:
        """The name of a process's tenant; empty if it is of no job that is held.

        Everybody may name a cgroup like one of Slurm's, so the job's user must have started it.
        """
        step = job_processes.step_of(process.cgroups)
        held = self.by_job.get(step.job) if step else None
        if held is None or process.real_uid != held.uid:
            return ""
        return held.tenant.name


def read(path: Path) -> JobTenants:
    """The jobs with a fence under a root; none where it is missing or may not be read."""
    try:
        root = roots.find(path)
        held = tenants.those(root, filter(_NAME.fullmatch, tenants.names(root)))
    except errors.FenceError:
        return JobTenants()
    return JobTenants(root, {job.job: job for job in _jobs(held)})


def _jobs(held: Mapping[str, tenants.Tenant]) -> Iterator[JobTenant]:
    for name, tenant in held.items():
        try:
            yield JobTenant(
                job=int(name.removeprefix(_PREFIX)),
                uid=tenant.region_path.lstat().st_uid,
                since=(tenant.folder / _WRITTEN_ONCE).lstat().st_mtime,
                tenant=tenant,
            )
        except OSError:
            continue  # it ended meanwhile
