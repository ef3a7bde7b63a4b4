"""Groups: processes of a tenant that have a quota of their own within the tenant's.

A step of a job is one. Its files lie in the tenant's folder, ``group-<number>.limits`` and
``group-<number>.region``, and its processes see them beside the tenant's own. Most tenants have no
groups. Whoever makes a tenant's groups knows what their numbers stand for.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import msgspec

from partage.core import errors
from partage.fence import usage
from partage.fence.store import layout, shared_files, tenants

_LIMITS = re.compile(r"group-([1-9][0-9]{0,9})\.limits", re.ASCII)


class GroupCard(msgspec.Struct, frozen=True, kw_only=True):
    """What a group does with one card of its tenant, and what it may have there."""

    uuid: str
    quota_bytes: int
    used_bytes: int
    peak_bytes: int
    refused: int  # allocations, because of its quota or the tenant's
    share_millionths: int = 0  # of the card's time, at most; 0: the tenant's


class Group(msgspec.Struct, frozen=True):
    """A group at one moment."""

    number: int
    cards: tuple[GroupCard, ...]


def of_tenant(tenant: tenants.Tenant, counted: usage.Usage) -> tuple[Group, ...]:
    """The groups of a tenant, by number; one that ends meanwhile, or is damaged, is left out."""
    groups: list[Group] = []
    for number in _numbers(tenant.folder):
        with contextlib.suppress(errors.FenceError):
            groups.append(_group(tenant, counted, number))
    return tuple(groups)


def limits_path(folder: Path, number: int) -> Path:
    """What a group may have; ``native/spank/group.c`` writes it."""
    return folder / f"group-{number}.limits"


def region_path(folder: Path, number: int) -> Path:
    """What a group keeps account of."""
    return folder / f"group-{number}.region"


def _numbers(folder: Path) -> list[int]:
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return []
    return sorted(int(match[1]) for name in names if (match := _LIMITS.fullmatch(name)))


def _group(tenant: tenants.Tenant, counted: usage.Usage, number: int) -> Group:
    limits = shared_files.read(limits_path(tenant.folder, number), layout.GroupLimits)
    region = shared_files.read(region_path(tenant.folder, number), layout.GroupRegion)
    members = [process for process in counted.processes if process.group == number]
    cards = (
        GroupCard(
            uuid=card.uuid,
            quota_bytes=min(limits.card[index].memory_bytes, card.memory_bytes),
            used_bytes=sum(process.used_bytes[index] for process in members),
            peak_bytes=region.card[index].peak_bytes,
            refused=region.card[index].refused,
            share_millionths=limits.card[index].share,
        )
        for index, card in enumerate(tenant.limits.cards)
    )
    return Group(number, tuple(cards))
