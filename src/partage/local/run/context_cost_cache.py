"""What a CUDA context costs on each card, measured once for each model and driver, and kept.

The fence counts a context against the share it is made in, and only the driver knows its size. To
measure it takes a process that makes one (:mod:`partage.devices.context_measurement`), so the
ledger remembers, and of those who start at the same time on a new machine one measures and the
others wait for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from partage.core import errors, grants
from partage.fence.store import locks
from partage.local.ledger import database, session
from partage.local.machine import machine
from partage.local.state import location


def costs(
    opened: session.Session, seen: machine.Seen, container: grants.ContainerGrant
) -> dict[str, int]:
    """In bytes, by uuid, for the cards of a grant; those that nobody could measure are left out."""
    kinds = {d.uuid: f"context/{seen.version}/{d.model}/{d.memory_mib}" for d in seen.devices}
    costs_by_uuid: dict[str, int] = {}
    for uuid in dict.fromkeys(share.uuid for share in container.shares):
        kind = kinds.get(uuid, "")
        cost = _number(opened.book.fact(kind)) or _measured(opened, uuid, kind)
        if cost:
            costs_by_uuid[uuid] = cost
    return costs_by_uuid


def _measured(opened: session.Session, uuid: str, kind: str) -> int:
    from partage.devices import context_measurement  # brings what starts processes; seldom needed

    with _alone(opened.state):
        measured = _number(opened.book.fact(kind))
        if measured:
            return measured
        try:
            cost = context_measurement.context_bytes(opened.driver, uuid)
        except errors.DeviceError:
            return 0  # a full card, say: contexts count for nothing this time
        if cost:
            with opened.book.deciding():
                opened.book.set_fact(kind, str(cost))
        return cost or 0


@contextmanager
def _alone(state: location.StateFolder) -> Iterator[None]:
    """By the lock of the folder itself: a file for it would have to be made by somebody.

    A user may name the state folder by a link, which itself has no lock.
    """
    with database.explained(state.path), locks.exclusive(state.path.resolve()):
        yield


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
