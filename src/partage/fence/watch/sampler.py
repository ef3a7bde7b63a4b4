"""The sampler: takes what the driver said, with what the kernel and the fences say of it.

The driver was asked before. The kernel is asked who its processes are, then the fences what they
count, then the kernel once more: processes that have ended meanwhile are left out.

A tenant's limits are not its own to write, so where they can be read and its region cannot, the
tenant has damaged the region: it counts nothing. A fence that lets all pass where it cannot
work (``open``) was chosen so, and is not judged.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from partage.core import errors
from partage.fence import processes, usage
from partage.fence.store import limits, roots, tenants
from partage.fence.watch import samples

Whose = Callable[[processes.Facts], str]  # the name of a process's tenant; empty: of none
TenantCard = tuple[str, str]  # a tenant on a card


_NOTHING: Mapping[TenantCard, int] = {}


class Holder(Protocol):
    """A process on a card, as the driver says."""

    @property
    def pid(self) -> int:
        """As this process's pid namespace knows it."""

    @property
    def used_bytes(self) -> int | None:
        """What it holds; None: the driver does not tell."""


class Occupied(Protocol):
    """A card as the driver says: :class:`partage.devices.nvml.Occupancy` is one."""

    @property
    def uuid(self) -> str:
        """Which one."""

    @property
    def used_bytes(self) -> int | None:
        """All that is in use there; None: the driver does not tell."""

    @property
    def processes(self) -> Sequence[Holder]:
        """The processes that use it."""


def taken(
    root: roots.Root,
    whose: Whose,
    cards: Sequence[Occupied],
    *,
    taken_s: float,
    granted: Mapping[TenantCard, int] = _NOTHING,
) -> samples.Sample:
    """What is known at this moment, given what the driver has just said.

    A quota may be lowered while a tenant runs, and takes nothing away: what was ``granted``, in
    bytes, is its due all the same.
    """
    held = tuple(
        samples.Holding(card.uuid, holder.pid, holder.used_bytes)
        for card in cards
        for holder in card.processes
    )
    living = tuple(_processes({holding.pid for holding in held}, whose))
    tenants_seen = tuple(_tenants(root, {process.tenant for process in living}, granted))
    return samples.Sample(
        taken_s=taken_s,
        cards=tuple(samples.Card(card.uuid, card.used_bytes) for card in cards),
        holdings=held,
        processes=tuple(process for process in living if _stays(process)),
        tenants=tenants_seen,
    )


def _processes(pids: Iterable[int], whose: Whose) -> Iterator[samples.Process]:
    for pid in sorted(pids):
        process = processes.facts(pid)
        tenant = "" if process is None else whose(process)
        if process is not None and tenant:
            yield samples.Process(
                pid=pid,
                started_ticks=process.started_ticks,
                inner_pid=process.inner_pid,
                tenant=tenant,
            )


def _stays(process: samples.Process) -> bool:
    stat = processes.stat(process.pid)
    return stat is not None and not stat.ended and stat.started_ticks == process.started_ticks


def _tenants(
    root: roots.Root, names: Iterable[str], granted: Mapping[TenantCard, int]
) -> Iterator[samples.Tenant]:
    for name in sorted(names):
        with contextlib.suppress(errors.PartageError):  # its fence is gone, or not made yet
            tenant = tenants.read(root, name)
            if tenant.limits.on_failure is limits.OnFailure.CLOSED and _readable(tenant):
                yield samples.Tenant(name, tuple(_shares(tenant, granted)))


def _readable(tenant: tenants.Tenant) -> bool:
    """Regions of other users may not be readable; what they count is not known then."""
    return os.access(tenant.region_path, os.R_OK)


def _shares(tenant: tenants.Tenant, granted: Mapping[TenantCard, int]) -> Iterator[samples.Share]:
    try:
        living = usage.counted(tenant).processes
    except errors.FenceError:
        living = ()
    for index, card in enumerate(tenant.limits.cards):
        due_bytes = max(card.memory_bytes, granted.get((tenant.name, card.uuid), 0))
        yield samples.Share(
            uuid=card.uuid,
            quota_bytes=None if due_bytes == limits.NO_QUOTA else due_bytes,
            context_bytes=card.context_bytes,
            timed=card.mode in (limits.Mode.FIXED, limits.Mode.BURST),
            counted=tuple(
                samples.Counted(process.pid, process.used_bytes[index]) for process in living
            ),
        )
