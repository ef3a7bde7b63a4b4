"""Rows of tenants that are not of the ledger: the jobs of Slurm on this machine, and their steps.

A step is a part of its job, and has a row of its own behind the job's. Everybody may read a job's
limits; what it counts, only its own user and root may. What others see of its memory is the
driver's word, and what nobody tells them is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from partage.core import errors
from partage.core.quantities import MIB
from partage.fence import groups, processes, usage, usage_rows
from partage.fence.levels import catalog
from partage.fence.store import limits
from partage.local.machine import machine, other_tenants
from partage.local.queue import decision
from partage.local.state import location
from partage.local.view import views

_NO_FENCE = "none"


def rows(now: decision.Survey, indexes: Mapping[str | None, int]) -> Iterator[views.TenantView]:
    """One for each job and card, and behind it one for each of the job's steps there."""
    for name, other in now.others.tenants.items():
        present, counted = now.others_present.get(name, ()), _counted(other)
        steps = groups.of_tenant(other.tenant, counted) if counted else ()
        for place, card in enumerate(other.tenant.limits.cards):
            on_card = counted.cards[place] if counted else None
            row = _job(other, card, on_card, present)
            row = msgspec.structs.replace(row, index=indexes.get(card.uuid))
            yield row
            for step in steps:
                members = _members(step, counted, present)
                yield _step(row, now.others.step_name(step.number), step.cards[place], members)


def unfenced_rows(
    jobs: Mapping[int, int],
    foreign: Sequence[machine.Present],
    indexes: Mapping[str | None, int],
    since: Callable[[int], float],
) -> Iterator[views.TenantView]:
    """Rows of jobs whose cards are their own, by ``jobs``: the number of each process's job.

    Nobody but the kernel and the driver tells of them, so they are as old as their processes.
    """
    by_job: dict[tuple[int, str], list[machine.Present]] = {}
    for process in foreign:
        if process.pid in jobs:
            by_job.setdefault((jobs[process.pid], process.uuid), []).append(process)
    for (job, uuid), present in by_job.items():
        granted_at = min(since(process.pid) for process in present)
        row = _unfenced(job, uuid, present, granted_at)
        yield msgspec.structs.replace(row, index=indexes.get(uuid))


def _unfenced(
    job: int, uuid: str, present: Sequence[machine.Present], granted_at: float
) -> views.TenantView:
    pids = tuple(process.pid for process in present)
    process = processes.facts(pids[0])
    owner = process.real_uid if process else None
    return views.TenantView(
        token=f"job-{job}",
        name=f"job-{job}",
        user="" if owner is None else location.user_name(owner),
        uid=-1 if owner is None else owner,
        pid=None,
        processes=pids,
        command=_command(pids),
        index=None,
        uuid=uuid,
        memory_mib=0,
        exclusive=True,
        compute_percent=0,
        ceiling_percent=None,
        mode=str(limits.Mode.NONE),
        fence=_NO_FENCE,
        granted_at=granted_at,
        priority=0,
        dialect="",
        used_bytes=_measured(uuid, present).used_bytes,
        peak_bytes=None,
        refused=None,
        busy_ns=None,
        throttled_ns=None,
        launches=None,
        job=job,
    )


def _counted(other: other_tenants.OtherTenant) -> usage.Usage | None:
    """What its fence counts; None where that may not be read."""
    try:
        return usage.counted(other.tenant)
    except errors.FenceError:
        return None


def _job(
    other: other_tenants.OtherTenant,
    card: limits.CardLimits,
    counted: usage.CardUsage | None,
    present: Sequence[machine.Present],
) -> views.TenantView:
    mode, ceiling = usage_rows.mode_in_force(card)
    counts = usage_rows.counted(counted) if counted else _measured(card.uuid, present)
    pids = tuple(dict.fromkeys(process.pid for process in present))
    return views.TenantView(
        token=other.tenant.name,
        name=other.tenant.name,
        user=location.user_name(other.uid),
        uid=other.uid,
        pid=None,
        processes=pids,
        command=_command(pids),
        index=None,
        uuid=card.uuid,
        memory_mib=other_tenants.memory_mib(card),
        exclusive=False,
        compute_percent=other_tenants.percent(card.share_millionths),
        ceiling_percent=ceiling,
        mode=mode,
        fence=str(catalog.Level.HOOK),
        granted_at=other.since,
        priority=0,
        dialect="",
        used_bytes=counts.used_bytes,
        peak_bytes=counts.peak_bytes,
        refused=counts.refused,
        busy_ns=counts.busy_ns,
        throttled_ns=counts.throttled_ns,
        launches=counts.launches,
        job=other.job,
    )


def _step(
    job: views.TenantView, name: str, card: groups.GroupCard, pids: tuple[int, ...]
) -> views.TenantView:
    """The row of a step, whose time nobody counts apart from its job's."""
    share = card.share_millionths
    return msgspec.structs.replace(
        job,
        token=f"{job.token}.{name}",
        step=name,
        processes=pids,
        command=_command(pids),
        memory_mib=card.quota_bytes // MIB,
        compute_percent=other_tenants.percent(share) if share else job.compute_percent,
        used_bytes=card.used_bytes,
        peak_bytes=card.peak_bytes,
        refused=card.refused,
        busy_ns=None,
        throttled_ns=None,
        launches=None,
    )


def _members(
    step: groups.Group, counted: usage.Usage | None, present: Sequence[machine.Present]
) -> tuple[int, ...]:
    """Those of the job's processes on its cards that are in the step, as its fence says."""
    registered = counted.processes if counted else ()
    pids = {process.pid for process in registered if process.group == step.number}
    return tuple(dict.fromkeys(process.pid for process in present if process.pid in pids))


def _command(pids: Sequence[int]) -> str | None:
    return processes.command(pids[0]) if pids else None


def _measured(uuid: str, present: Sequence[machine.Present]) -> usage_rows.Counts:
    """What the driver says that its processes hold; None if it does not tell of one of them."""
    sizes = [process.used_bytes for process in present if process.uuid == uuid]
    told_sizes = [size for size in sizes if size is not None]
    return usage_rows.Counts(used_bytes=sum(told_sizes) if len(told_sizes) == len(sizes) else None)
