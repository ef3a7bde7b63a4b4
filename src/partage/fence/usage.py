"""Usage: what the tenants do with their cards, as their processes account for it.

Read from the region, which the tenant writes: it can lie to us, but it cannot harm us. A process
that has died counts nothing, whatever its slot says, because the kernel gave its lock back. One
odd slot, or one odd tenant, never hides the others.
"""

from __future__ import annotations

import contextlib

import msgspec

from partage.core import errors
from partage.fence.store import layout, limits, locks, roots, shared_files, tenants

_MOST = (1 << 64) - 1  # a tenant that wrote nonsense must not make a sum that cannot be encoded


class CardUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant does with one of its cards, and what it may do."""

    uuid: str
    quota_bytes: int | None  # None: as much as the card has
    used_bytes: int
    peak_bytes: int
    refused: int  # allocations, because of the quota
    mode: limits.Mode
    share_millionths: int
    ceiling_millionths: int
    paused: bool
    throttled: int  # launches that had to wait
    throttled_ns: int
    launches: int
    busy_ns: int
    yields: bool = False  # launches wait while tenants that go first have work


class ProcessUsage(msgspec.Struct, frozen=True):
    """What one living process has, card by card in the tenant's order."""

    pid: int  # in its own pid namespace: in a container it is not the host's
    used_bytes: tuple[int, ...]
    group: int = 0  # the number of its group, see partage.fence.groups; 0: none


class Usage(msgspec.Struct, frozen=True):
    """A tenant at one moment."""

    tenant: str
    cards: tuple[CardUsage, ...]
    processes: tuple[ProcessUsage, ...]


class Unreadable(msgspec.Struct, frozen=True):
    """A tenant that exists and cannot be read."""

    tenant: str
    problem: str


def snapshot(root: roots.Root, name: str) -> Usage:
    """What a tenant does now."""
    return counted(tenants.read(root, name))


def counted(tenant: tenants.Tenant) -> Usage:
    """What a tenant whose limits were read does now."""
    with shared_files.opened(tenant.region_path) as fd:
        region = shared_files.copied(tenant.region_path, fd, layout.Region)
        used = min(region.slots_used, layout.SLOTS)
        living = [slot for slot in range(used) if locks.held(fd, slot)]
    cards = range(len(tenant.limits.cards))
    return Usage(
        tenant.name,
        tuple(_card(tenant.limits.cards[card], region, card, living) for card in cards),
        tuple(_process(region, slot, cards) for slot in living),
    )


def everything(root: roots.Root) -> list[Usage | Unreadable]:
    """All tenants of a root; those that go away meanwhile are left out."""
    answers: list[Usage | Unreadable] = []
    for name in tenants.names(root):
        with contextlib.suppress(errors.InputError):  # it has gone meanwhile
            answers.append(_read(root, name))
    return answers


def _read(root: roots.Root, name: str) -> Usage | Unreadable:
    try:
        return snapshot(root, name)
    except errors.FenceError as error:
        if not (root.tenants / name).exists():
            raise errors.InputError(f"tenant {name} is gone") from error
        return Unreadable(name, str(error))


def _card(
    limit: limits.CardLimits, region: layout.Region, card: int, living: list[int]
) -> CardUsage:
    raw = region.card[card]
    used = sum(region.used_bytes[card][slot] for slot in living)
    return CardUsage(
        uuid=limit.uuid,
        quota_bytes=None if limit.memory_bytes == limits.NO_QUOTA else limit.memory_bytes,
        used_bytes=min(used, _MOST),
        peak_bytes=raw.peak_bytes,
        refused=raw.refused,
        mode=limit.mode,
        share_millionths=limit.share_millionths,
        ceiling_millionths=limit.ceiling_millionths,
        paused=limit.paused,
        throttled=raw.throttled,
        throttled_ns=raw.throttled_ns,
        launches=raw.launches,
        busy_ns=raw.busy_ns,
        yields=limit.yields,
    )


def _process(region: layout.Region, slot: int, cards: range) -> ProcessUsage:
    used = tuple(region.used_bytes[card][slot] for card in cards)
    return ProcessUsage(region.slot[slot].pid, used, region.slot[slot].group)
