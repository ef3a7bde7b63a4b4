"""Seats: where the tenants of one card see each other.

A seat is a small file for each tenant of a card. Only its tenant writes it; the others read it to
know who else wants the card's time. The node side hands the seats out, always the lowest number
that is free, and each tenant gets a fresh file. All of this happens under the root's lock, and
there is no list of seats beside the tenants themselves: who has which seat is in their limits, so
that a killed process cannot leave the two in disagreement. A file without a tenant is only litter.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from partage.core import errors
from partage.fence.store import layout, limits, roots, shared_files


def path(root: roots.Root, uuid: str, seat: int) -> Path:
    """Where a seat of a card is."""
    return root.seats / uuid / str(seat)


def link(uuid: str) -> str:
    """What a tenant's link to the seats of a card says."""
    return f"../../seats/{uuid}"


def linked(folder: Path) -> tuple[str, ...]:
    """The uuids of a tenant's cards in their order, from its links alone."""
    uuids: list[str] = []
    for index in range(layout.CARDS):
        try:
            uuids.append((folder / f"seats-{index}").readlink().name)
        except OSError:
            break
    return tuple(uuids)


def take(root: roots.Root, uuid: str, taken: Collection[int], *, uid: int, gid: int) -> int:
    """Make a fresh seat for a user at the lowest number that nobody has.

    To be called under the root's lock, with a scratch folder.
    """
    roots.make_folder(root.seats / uuid, root)
    _check_writable(root.seats / uuid)
    for seat in range(layout.SEATS):
        if seat not in taken and _make(root, uuid, seat, uid, gid):
            return seat
    raise errors.FenceError(
        f"card {uuid} has {layout.SEATS} tenants already, and no seat for another",
        instead="remove tenants that have ended, or choose another card",
    )


def _check_writable(folder: Path) -> None:
    """Nobody can take a seat in a folder that they cannot write to."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise errors.FenceError(
            f"this user may not write to {folder}",
            instead="as its owner or root, give it to the owner of its parent folder",
        )


def made(root: roots.Root, uuid: str) -> set[int]:
    """All seats at a card that have a file, even without a tenant."""
    try:
        file_names = [path.name for path in (root.seats / uuid).iterdir()]
    except FileNotFoundError:
        return set()
    return {int(name) for name in file_names if name.isdecimal()}


def leave(root: roots.Root, uuid: str, seat: int) -> None:
    """Free a seat."""
    with contextlib.suppress(OSError):
        path(root, uuid, seat).unlink()


def _make(root: roots.Root, uuid: str, seat: int, uid: int, gid: int) -> bool:
    """False: another member of the group left a file there that only they may remove."""
    content = shared_files.blank(layout.Seat)
    content.uuid[:] = limits.CardLimits(uuid=uuid).raw_uuid
    made = root.scratch / "seat"
    shared_files.write(made, content, mode=root.seat_mode, owner=(uid, gid))
    try:
        made.replace(path(root, uuid, seat))
    except PermissionError:
        made.unlink()
        return False
    return True
