"""Which processes belong to a program, before a signal is sent to them.

The ledger names the program of a tenant, and the fence names processes behind it, but both are
written by the tenant: they may be wrong or lie, process ids are used again, and a container has
other ids. A signal of root must not be led to somebody else's process by that. So only what the
kernel says counts. A process belongs to a tenant if

- it has the tenant's lease open for writing, as only the program and those who inherited it have;
- it is the program itself: it runs as the tenant's user and was started before the grant; or
- it descends from that program.

The processes of a job of Slurm were started by its user, and are in the job's cgroup. A process for
which none of this is true, or can be read, is left alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from partage.cli.display import pages
from partage.fence import processes
from partage.slurm.jobs import job_processes

_SLACK_S = 1.0  # clocks are rounded, and corrected


def belongs(pid: int, target: pages.Target) -> bool:
    """Whether a process belongs to the target, as the kernel says."""
    if pid <= 1:
        return False
    if target.job is not None:
        return _is_of_job(pid, target)
    if _has_lease(pid, target.lease):
        return True
    if not _is_program(target):
        return False
    return target.pid in processes.ancestors(pid)


def _has_lease(pid: int, lease: str) -> bool:
    """Others may have it open, too, for a moment; they only read."""
    try:
        lease_status = Path(lease).stat()
    except OSError:
        return False
    return any(os.path.samestat(status, lease_status) for status in _written(pid))


def _written(pid: int) -> Iterator[os.stat_result]:
    """The files that a process has open for writing, as far as this user may see them."""
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return
    for link in links:
        try:
            if link.lstat().st_mode & stat.S_IWUSR:
                yield link.stat()
        except OSError:
            continue  # closed meanwhile


def _is_of_job(pid: int, target: pages.Target) -> bool:
    process = processes.facts(pid)
    if process is None or process.real_uid != target.uid:
        return False
    step = job_processes.step_of(process.cgroups)
    return step is not None and step.job == target.job


def _is_program(target: pages.Target) -> bool:
    if target.pid is None or target.pid <= 1:
        return False
    if processes.stat(target.pid) is None or processes.owner(target.pid) != target.uid:
        return False
    return processes.since(target.pid) <= target.since + _SLACK_S
