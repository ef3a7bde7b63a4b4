"""A sample as it is taken: what the driver said, with what the kernel and the fences say of it.

The driver was asked before. The kernel is asked who its processes are, then the fences what they
count, then the kernel once more: of whoever has ended meanwhile nothing is said.

A tenant's limits are not its own to write, so where they can be read and its region cannot, it was
the tenant who damaged the region: it counts nothing. A fence that lets all pass where it cannot
work (``open``) was chosen so, and is not judged.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from partage.core import errors
from partage.fence import limits, processes, roots, tenants, usage
from partage.fence.watch import facts

Whose = Callable[[processes.Facts], str]  # the name of a process's tenant; empty: nobody's
Place = tuple[str, str]  # a tenant on a card


_NOTHING: Mapping[Place, int] = {}


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
        """By whom."""


def taken(
    root: roots.Root,
    whose: Whose,
    cards: Sequence[Occupied],
    *,
    taken_s: float,
    granted: Mapping[Place, int] = _NOTHING,
) -> facts.Sample:
    """What is known at this moment, given what the driver has just said.

    A quota may be lowered while a tenant runs, and takes nothing away: what was ``granted``, in
    bytes, is its due all the same.
    """
    held = tuple(
        facts.Holding(card.uuid, holder.pid, holder.used_bytes)
        for card in cards
        for holder in card.processes
    )
    there = tuple(_processes({each.pid for each in held}, whose))
    known = tuple(_tenants(root, {each.tenant for each in there}, granted))
    return facts.Sample(
        taken_s=taken_s,
        cards=tuple(facts.Card(card.uuid, card.used_bytes) for card in cards),
        holdings=held,
        processes=tuple(each for each in there if _stays(each)),
        tenants=known,
    )


def _processes(pids: Iterable[int], whose: Whose) -> Iterator[facts.Process]:
    for pid in sorted(pids):
        found = processes.facts(pid)
        tenant = "" if found is None else whose(found)
        if found is not None and tenant:
            yield facts.Process(
                pid=pid,
                started_ticks=found.started_ticks,
                inner_pid=found.inner_pid,
                tenant=tenant,
            )


def _stays(process: facts.Process) -> bool:
    found = processes.stat(process.pid)
    return found is not None and not found.ended and found.started_ticks == process.started_ticks


def _tenants(
    root: roots.Root, names: Iterable[str], granted: Mapping[Place, int]
) -> Iterator[facts.Tenant]:
    for name in sorted(names):
        with contextlib.suppress(errors.PartageError):  # its fence is gone, or not made yet
            tenant = tenants.read(root, name)
            if tenant.limits.on_failure is limits.OnFailure.CLOSED and _readable(tenant):
                yield facts.Tenant(name, tuple(_shares(tenant, granted)))


def _readable(tenant: tenants.Tenant) -> bool:
    """Other users' regions are not everybody's to read; what they count is not known then."""
    return os.access(tenant.region_path, os.R_OK)


def _shares(tenant: tenants.Tenant, granted: Mapping[Place, int]) -> Iterator[facts.Share]:
    try:
        living = usage.counted(tenant).processes
    except errors.FenceError:
        living = ()
    for index, card in enumerate(tenant.limits.cards):
        due_bytes = max(card.memory_bytes, granted.get((tenant.name, card.uuid), 0))
        yield facts.Share(
            uuid=card.uuid,
            quota_bytes=None if due_bytes == limits.NO_QUOTA else due_bytes,
            context_bytes=card.context_bytes,
            timed=card.mode in (limits.Mode.FIXED, limits.Mode.BURST),
            counted=tuple(facts.Counted(each.pid, each.used_bytes[index]) for each in living),
        )
