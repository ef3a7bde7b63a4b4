"""Sweeping: who in the ledger still lives, as the kernel says.

Whoever decides calls :func:`sweep` first, in his transaction. Rows of those who have ended go, and
rows that somebody changed or took away are put right from the leases of their owners. What the
ended left on disk is removed afterwards (:func:`tidy`), as far as this user may: nobody ever gets
their tokens again, so there is no hurry.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

import msgspec

from partage.core import errors
from partage.fence import roots, tenants
from partage.local import entries, leases, ledger, places, processes


class Swept(msgspec.Struct, frozen=True):
    """Who lives, and whose leases are only litter."""

    living: tuple[entries.Entry, ...]
    ended: tuple[str, ...] = ()  # tokens


def look(place: places.Place, rows: Sequence[entries.Entry]) -> Swept:
    """Who lives, as their leases say, in the order in which they came; nothing is changed.

    Without the ledger's rows all who run are still found, and where they stood in the queue is not.
    """
    known = {row.token: row for row in rows}
    tokens = {*known, *leases.tokens(place.leases)}
    found = {token: one(place, token, known.get(token)) for token in tokens}
    living = sorted((each for each in found.values() if each), key=lambda each: each.seq)
    return Swept(tuple(living), tuple(token for token, each in found.items() if each is None))


def sweep(place: places.Place, book: ledger.Ledger) -> Swept:
    """The same, and the ledger has those who live and nobody else."""
    rows = {row.token: row for row in book.all()}
    swept = look(place, tuple(rows.values()))
    book.keep_only({each.token for each in swept.living} & rows.keys())
    living = tuple(_restored(book, each, rows.get(each.token)) for each in swept.living)
    return Swept(living, swept.ended)


def waits(place: places.Place, entry: entries.Entry) -> bool:
    """Whether one who waits still lives."""
    return one(place, entry.token, entry) is not None


def tidy(place: places.Place, ended: tuple[str, ...]) -> None:
    """Remove what those who have ended left on disk, as far as this user may."""
    root = roots.find(place.fence)
    gone = set(ended)
    for name in tenants.names(root):
        token = name.rpartition(".")[2]
        if token in gone or not (place.leases / token).exists():
            with contextlib.suppress(errors.PartageError, OSError):
                tenants.remove(root, name)
    for token in ended:
        leases.remove(place.leases, token)


def _restored(book: ledger.Ledger, each: entries.Entry, row: entries.Entry | None) -> entries.Entry:
    """Put the ledger right about one who lives."""
    if each == row:
        return each
    book.remove(each.token)  # what cannot be read may be there
    anew = msgspec.structs.replace(each, seq=book.next_seq()) if row is None else each
    book.add(anew)
    return anew


def one(place: places.Place, token: str, row: entries.Entry | None) -> entries.Entry | None:
    """One who lives, as he says himself; as the ledger says, where he has said nothing yet.

    After a reboot nobody does, whatever process has his process id now.
    """
    found = leases.find(place.leases, token)
    if found is None:
        return None
    said = _said(found, row)
    if said is None or said.boot_id != processes.boot_id():
        return None
    return said if found.locked or _lives(place, said) else None


def _said(found: leases.Found, row: entries.Entry | None) -> entries.Entry | None:
    """His own words, with what others decide: his number, and a grant that he has not seen yet."""
    own = found.entry
    if own is None or not entries.sound(own, found.uid):
        return row if row is not None and entries.sound(row, found.uid) else None
    if row is None:
        return own
    given = row if own.grant is None and entries.sound(row, found.uid) else own
    return msgspec.structs.replace(own, seq=row.seq, grant=given.grant, granted_at=given.granted_at)


def _lives(place: places.Place, entry: entries.Entry) -> bool:
    """The lock is gone, but a program may have closed it, and left children behind."""
    if processes.lives(entry.pid, entry.started_ticks):
        return True
    if entry.grant is None:
        return False
    return tenants.running(roots.find(place.fence), entry.tenant) > 0


def mine(entry: entries.Entry) -> bool:
    """Whether this user may change it."""
    return os.geteuid() in (0, entry.uid)
