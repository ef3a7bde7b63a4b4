"""Seats: where the tenants of one card see each other.

A seat is a small file for each tenant of a card. Only its tenant writes it; the others read it to
know who else wants the card's time. The node side hands the seats out, always the lowest number
that is free, and each tenant gets a fresh file. All of this happens under the root's lock, and
there is no list of seats beside the tenants themselves: who has which seat is in their limits, so
that a killed process cannot leave the two in disagreement. A file of nobody is only litter.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from partage.core import errors
from partage.fence import files, layout, limits, roots


def path(root: roots.Root, uuid: str, seat: int) -> Path:
    """Where a seat of a card is."""
    return root.seats / uuid / str(seat)


def link(uuid: str) -> str:
    """What a tenant's link to the seats of a card says."""
    return f"../../seats/{uuid}"


def linked(folder: Path) -> tuple[str, ...]:
    """The uuids of a tenant's cards in their order, from its links alone."""
    found: list[str] = []
    for index in range(layout.CARDS):
        try:
            found.append((folder / f"seats-{index}").readlink().name)
        except OSError:
            break
    return tuple(found)


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
        f"card {uuid} has {layout.SEATS} tenants, and no seat for another",
        instead="remove tenants that have ended, or choose another card",
    )


def _check_writable(folder: Path) -> None:
    """Where nothing can be made, no seat is taken by anybody."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise errors.FenceError(
            f"{folder} may not be written by this user",
            instead="let its owner, or root, give it to the owner of the folder that it is in",
        )


def made(root: roots.Root, uuid: str) -> set[int]:
    """All seats at a card, those of nobody too."""
    try:
        found = [each.name for each in (root.seats / uuid).iterdir()]
    except FileNotFoundError:
        return set()
    return {int(name) for name in found if name.isdecimal()}


def leave(root: roots.Root, uuid: str, seat: int) -> None:
    """Nobody sits there any more."""
    with contextlib.suppress(OSError):
        path(root, uuid, seat).unlink()


def _make(root: roots.Root, uuid: str, seat: int, uid: int, gid: int) -> bool:
    """False: another member of the group left something there that only he may remove."""
    content = files.blank(layout.Seat)
    content.uuid[:] = limits.CardLimits(uuid=uuid).raw_uuid
    made = root.scratch / "seat"
    files.write(made, content, mode=root.seat_mode, owner=(uid, gid))
    try:
        made.replace(path(root, uuid, seat))
    except PermissionError:
        made.unlink()
        return False
    return True
