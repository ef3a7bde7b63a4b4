"""Tenants: made, found, changed and removed on disk.

A tenant is a folder under a root (:mod:`partage.fence.store.roots`) with its limits, its region,
and links to the seats at its cards and to the libraries that its programs load. It is made in one
step and removed in one step, even if a process is killed meanwhile; two makers never give the same
seat away twice.

Limits change while the tenant runs: each is a word in a file that its processes have mapped, and
they see the new value at their next allocation or launch. This module does not start anything, and
does not know which fence is in force; :mod:`partage.fence.levels.hook` does that with it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from partage.core import errors
from partage.fence.library import aliases, substitutes
from partage.fence.store import layout, limits, limits_file, locks, roots, seats, shared_files

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NO_LINKS: Mapping[str, Path] = MappingProxyType({})


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant as its files say."""

    name: str
    folder: Path
    limits: limits.Limits
    seats: tuple[int, ...]  # at each of its cards

    @property
    def limits_path(self) -> Path:
        """What PARTAGE_LIMITS names; beside it the library finds the rest."""
        return self.folder / "limits"

    @property
    def region_path(self) -> Path:
        """Where its processes keep account."""
        return self.folder / "region"

    @property
    def libraries(self) -> Path:
        """The folder of the libraries that its processes load, unless they are containers."""
        return self.folder / substitutes.FOLDER


def create(
    root: roots.Root,
    name: str,
    requested: limits.Limits,
    *,
    uid: int | None = None,
    gid: int | None = None,
    links: Mapping[str, Path] = _NO_LINKS,
) -> Tenant:
    """Make a tenant whose processes run as this user (by default, as the one who makes it).

    They load their libraries through ``links``, a folder of the tenant's.
    """
    folder = _folder(root, name)
    owner = root.owner
    user = (owner[0] if uid is None else uid, owner[1] if gid is None else gid)
    with root.locked():
        if folder.exists():
            raise errors.FenceError(
                f"tenant {name} already exists",
                instead="choose another name, or remove that tenant first",
            )
        root.scratch.mkdir(mode=0o700)
        taken = tuple(_take_seat(root, card.uuid, *user) for card in requested.cards)
        _write(root, requested, taken, *user)
        _link(root, links)
        shared_files.settle_folder(root.scratch, root.folder_mode, root.owner)
        root.scratch.rename(folder)
    return Tenant(name=name, folder=folder, limits=requested, seats=taken)


def read(root: roots.Root, name: str) -> Tenant:
    """A tenant that is there."""
    folder = _existing(root, name)
    raw = shared_files.read(folder / "limits", layout.Limits)
    return _value(name, folder, raw)


def those(root: roots.Root, tenant_names: Iterable[str]) -> dict[str, Tenant]:
    """The tenants of these names; those that are not there, or cannot be read, are left out."""
    read_tenants: dict[str, Tenant] = {}
    for name in tenant_names:
        folder = _folder(root, name)
        with contextlib.suppress(errors.FenceError):
            raw = shared_files.read(folder / "limits", layout.Limits)
            read_tenants[name] = _value(name, folder, raw)
    return read_tenants


def names(root: roots.Root) -> list[str]:
    """All tenants under a root, in alphabetical order."""
    try:
        file_names = [folder.name for folder in root.tenants.iterdir()]
    except OSError as error:
        raise errors.FenceError(
            f"{root.tenants} cannot be read ({error.strerror})",
            instead="do it as its owner, or as root",
        ) from error
    return sorted(name for name in file_names if _NAME.fullmatch(name))


def change(
    root: roots.Root, name: str, requested: limits.Change, *, uuid: str | None = None
) -> Tenant:
    """Change the limits of a tenant that runs, on one of its cards or on all of them."""
    folder = _existing(root, name)
    with root.locked(), shared_files.mapped(folder / "limits", layout.Limits) as raw:
        before = _value(name, folder, raw)
        if uuid is not None and uuid not in {card.uuid for card in before.limits.cards}:
            raise errors.InputError(
                f"tenant {name} has no card {uuid}",
                instead=f"name one of {', '.join(card.uuid for card in before.limits.cards)}",
            )
        cards = tuple(
            limits.changed(card, requested) if uuid in (None, card.uuid) else card
            for card in before.limits.cards
        )
        limits_file.store(raw, limits.Limits(cards, before.limits.on_failure))
        return _value(name, folder, raw)


def set_time(root: roots.Root, name: str, times: Mapping[str, limits.Time]) -> None:
    """Change how the time of a tenant that runs is limited, by uuid; nothing else is touched.

    A tenant that has gone meanwhile, and a card that it does not have, are left alone.
    """
    with root.locked():
        folder = _folder(root, name)
        if not folder.is_dir():
            return
        with shared_files.mapped(folder / "limits", layout.Limits) as raw:
            before = _value(name, folder, raw).limits
            cards = tuple(
                limits.timed(card, times[card.uuid]) if card.uuid in times else card
                for card in before.cards
            )
            limits_file.store(raw, limits.Limits(cards, before.on_failure))


def replace(root: roots.Root, name: str, requested: limits.Limits) -> Tenant:
    """Set all limits of a tenant that runs; its cards stay the ones it has."""
    folder = _existing(root, name)
    with root.locked(), shared_files.mapped(folder / "limits", layout.Limits) as raw:
        before = _value(name, folder, raw)
        if [card.uuid for card in requested.cards] != [card.uuid for card in before.limits.cards]:
            raise errors.FenceError(
                f"tenant {name} has other cards than the new limits",
                instead="a tenant keeps its cards: end it and start it again",
            )
        limits_file.store(raw, requested)
        return _value(name, folder, raw)


def remove(root: roots.Root, name: str, *, force: bool = False) -> None:
    """Remove a tenant whose processes have ended; with force, one that still runs.

    Processes that still run keep the limits they have mapped, but not their seats.
    """
    with root.locked():
        folder = _existing(root, name)
        running = 0 if force else _running(folder / "region")
        if running:
            raise errors.FenceError(
                f"{running} processes of tenant {name} still use CUDA", instead="end them first"
            )
        aliases.forget(folder / substitutes.FOLDER)
        folder.rename(root.scratch)  # which goes with the lock
        _leave_seats(root, root.scratch)


def running(root: roots.Root, name: str) -> int:
    """How many of a tenant's processes are alive; 0 for a tenant that does not exist.

    This much is known even of a region that is damaged.
    """
    try:
        return _running(_folder(root, name) / "region")
    except errors.FenceError:
        return 0


def _folder(root: roots.Root, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise errors.InputError(
            f"{name!r} is not a valid name of a tenant",
            instead="write up to 128 letters, digits, dots, dashes and underscores",
        )
    return root.tenants / name


def _existing(root: roots.Root, name: str) -> Path:
    folder = _folder(root, name)
    existing = names(root)
    if name not in existing:
        raise errors.InputError(
            f"no tenant {name} under {root.path}",
            instead=f"choose one of {', '.join(existing)}" if existing else "there are no tenants",
        )
    return folder


def _take_seat(root: roots.Root, uuid: str, uid: int, gid: int) -> int:
    taken: set[int] = set()
    for name in names(root):
        folder = root.tenants / name
        cards = seats.linked(folder)
        if uuid in cards:
            try:
                raw = shared_files.read(folder / "limits", layout.Limits)
                taken.add(raw.card[cards.index(uuid)].seat)
            except errors.FenceError:
                taken |= seats.made(root, uuid)  # the tenant's own is one of them
    return seats.take(root, uuid, taken, uid=uid, gid=gid)


def _leave_seats(root: roots.Root, folder: Path) -> None:
    """Of a tenant that is being removed; a seat that is not known is replaced at its next use."""
    with contextlib.suppress(errors.FenceError):
        raw = shared_files.read(folder / "limits", layout.Limits)
        for card, uuid in zip(raw.card, seats.linked(folder), strict=False):
            seats.leave(root, uuid, card.seat)


def _write(
    root: roots.Root, requested: limits.Limits, taken: tuple[int, ...], uid: int, gid: int
) -> None:
    """Fill the scratch folder."""
    for index, card in enumerate(requested.cards):
        (root.scratch / f"seats-{index}").symlink_to(seats.link(card.uuid))
    shared_files.write(root.scratch / "limits", limits_file.new(requested, taken), mode=0o644)
    region = shared_files.blank(layout.Region)
    shared_files.write(root.scratch / "region", region, mode=root.region_mode, owner=(uid, gid))


def _link(root: roots.Root, links: Mapping[str, Path]) -> None:
    """Fill its folder of libraries, if it needs one; nobody else may write there."""
    if not links:
        return
    folder = root.scratch / substitutes.FOLDER
    folder.mkdir(mode=0o700)
    for name, target in links.items():
        (folder / name).symlink_to(target)
    shared_files.settle_folder(folder, 0o755, root.owner)


def _value(name: str, folder: Path, raw: layout.Limits) -> Tenant:
    try:
        value = limits_file.value(raw, seats.linked(folder))
    except ValueError as error:
        raise errors.FenceError(
            f"{folder / 'limits'} is not valid: {error}",
            instead="the file is damaged: end the tenant and start it again",
        ) from error
    return Tenant(name=name, folder=folder, limits=value, seats=limits_file.seats(raw))


def _running(region: Path) -> int:
    with shared_files.opened(region) as fd:
        if not locks.held(fd, 0, count=layout.SLOTS):
            return 0
        return sum(locks.held(fd, slot) for slot in range(layout.SLOTS))
