"""What a CUDA context costs on each card, measured once for each model and driver, and kept.

The fence counts a context against the share it is made in, and only the driver knows its size. To
measure it takes a process that makes one (:mod:`partage.devices.measuring`), so the ledger
remembers, and of those who start at the same time on a new machine one measures and the others wait
for him.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from partage.core import errors, grants
from partage.fence import locks
from partage.local import databases, machine, places, sessions


def costs(
    here: sessions.Session, seen: machine.Seen, container: grants.ContainerGrant
) -> dict[str, int]:
    """In bytes, by uuid, for the cards of a grant; those that nobody could measure are left out."""
    kinds = {d.uuid: f"context/{seen.version}/{d.model}/{d.memory_mib}" for d in seen.devices}
    found: dict[str, int] = {}
    for uuid in dict.fromkeys(share.uuid for share in container.shares):
        kind = kinds.get(uuid, "")
        known = _number(here.book.fact(kind)) or _measured(here, uuid, kind)
        if known:
            found[uuid] = known
    return found


def _measured(here: sessions.Session, uuid: str, kind: str) -> int:
    from partage.devices import measuring  # brings what starts processes; seldom needed

    with _alone(here.place):
        known = _number(here.book.fact(kind))
        if known:
            return known
        try:
            cost = measuring.context_bytes(here.driver, uuid)
        except errors.DeviceError:
            return 0  # a full card, say: contexts count for nothing this time
        if cost:
            with here.book.deciding():
                here.book.set_fact(kind, str(cost))
        return cost or 0


@contextmanager
def _alone(place: places.Place) -> Iterator[None]:
    """By the lock of the folder itself: a file for it would have to be made by somebody.

    Whoever names the place may do so by a link, which itself has no lock.
    """
    with databases.explained(place.path), locks.exclusive(place.path.resolve()):
        yield


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
