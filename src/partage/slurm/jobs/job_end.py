"""The end of a job on a node: what it used is written down, then its tenant is removed.

The Epilog does it as root, when Slurm has ended all processes of the job. Slurm runs the Epilog
whatever happened to the job, to slurmstepd, or to slurmd, so nothing else has to find leftovers. A
log that cannot be written keeps no tenant: its seats at the cards are needed again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from partage.core import errors
from partage.fence import usage
from partage.fence.store import roots, tenants
from partage.slurm.jobs import job_usage

_PATIENCE_S = 5.0  # the last of a job's processes may take a moment to be gone
_LOOK_EVERY_S = 0.05


class Ending(msgspec.Struct, frozen=True):
    """A job whose tenant is gone."""

    use: job_usage.JobUse
    not_logged: str = ""  # why the log does not have it


def tenant_name(job: int) -> str:
    """As ``native/spank/spank.h`` has it."""
    return f"job-{job}"


def finish(
    root: roots.Root, job: int, folder: Path, *, node: str, now: Callable[[], float] = time.time
) -> Ending | None:
    """Write down what a job used, and remove its tenant; None if it has none."""
    name = tenant_name(job)
    if name not in tenants.names(root):
        return None
    _await_end(root, name)
    use = _used(root, name, job, node, int(now()))
    not_logged = _logged(folder, use)
    tenants.remove(root, name, force=True)  # Slurm says that it is over
    return Ending(use, not_logged)


def _logged(folder: Path, use: job_usage.JobUse) -> str:
    """Why it cannot be; empty if it is."""
    try:
        job_usage.append(folder, use)
    except OSError as error:
        return f"{error.filename or folder} cannot be written ({error.strerror})"
    return ""


def _await_end(root: roots.Root, name: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while tenants.running(root, name) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)


def _used(root: roots.Root, name: str, job: int, node: str, ended_s: int) -> job_usage.JobUse:
    uid = (root.tenants / name / "region").lstat().st_uid
    try:
        cards, problem = usage.snapshot(root, name).cards, ""
    except errors.PartageError as error:
        cards, problem = (), error.what
    return job_usage.JobUse(
        job=job,
        uid=uid,
        node=node,
        ended_s=ended_s,
        cards=tuple(_card(card) for card in cards),
        problem=problem,
    )


def _card(card: usage.CardUsage) -> job_usage.CardUse:
    return job_usage.CardUse(
        uuid=card.uuid,
        quota_bytes=card.quota_bytes,
        peak_bytes=card.peak_bytes,
        refused=card.refused,
        busy_ns=card.busy_ns,
        throttled_ns=card.throttled_ns,
        launches=card.launches,
    )
