"""Liveness: which entries of the ledger still live, as the kernel says.

Each decision begins with :func:`sweep`, in the same transaction. Rows of those who have ended go,
and rows that somebody changed or took away are corrected from the leases of their owners. What the
ended left on disk is removed afterwards (:func:`tidy`), as far as this user may: nobody ever gets
their tokens again, so there is no hurry.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

import msgspec

from partage.core import errors
from partage.fence import processes
from partage.fence.store import roots, tenants
from partage.local.ledger import ledger
from partage.local.state import entries, leases, location


class Swept(msgspec.Struct, frozen=True):
    """The entries that live, and the tokens of those that left only litter."""

    living: tuple[entries.Entry, ...]
    ended: tuple[str, ...] = ()  # tokens


def look(state: location.StateFolder, rows: Sequence[entries.Entry]) -> Swept:
    """The entries that live, by their leases, in the order they came in; nothing is changed.

    Without the ledger's rows all who run are still found, and where they stood in the queue is not.
    """
    rows_by_token = {row.token: row for row in rows}
    tokens = {*rows_by_token, *leases.tokens(state.leases)}
    entries_by_token = {
        token: living_entry(state, token, rows_by_token.get(token)) for token in tokens
    }
    living = sorted(
        (entry for entry in entries_by_token.values() if entry), key=lambda entry: entry.seq
    )
    return Swept(
        tuple(living), tuple(token for token, entry in entries_by_token.items() if entry is None)
    )


def sweep(state: location.StateFolder, book: ledger.Ledger) -> Swept:
    """The same, and then the ledger has the living entries and no others."""
    rows = {row.token: row for row in book.all()}
    swept = look(state, tuple(rows.values()))
    book.keep_only({entry.token for entry in swept.living} & rows.keys())
    living = tuple(_restored(book, entry, rows.get(entry.token)) for entry in swept.living)
    return Swept(living, swept.ended)


def waits(state: location.StateFolder, entry: entries.Entry) -> bool:
    """Whether an entry that waits still lives."""
    return living_entry(state, entry.token, entry) is not None


def tidy(state: location.StateFolder, ended: tuple[str, ...]) -> None:
    """Remove what those who have ended left on disk, as far as this user may."""
    root = roots.find(state.fence)
    for name in leftover_tenants(state, ended):
        with contextlib.suppress(errors.PartageError, OSError):
            tenants.remove(root, name)
    for token in ended:
        leases.remove(state.leases, token)


def leftover_tenants(state: location.StateFolder, ended: tuple[str, ...]) -> Iterator[str]:
    """The fences of those who have ended, by the names of their tenants."""
    root = roots.find(state.fence)
    gone = set(ended)
    for name in tenants.names(root):
        token = name.rpartition(".")[2]
        nobodys = token in gone or not (state.leases / token).exists()
        if nobodys and not tenants.running(root, name):
            yield name


def _restored(
    book: ledger.Ledger, entry: entries.Entry, row: entries.Entry | None
) -> entries.Entry:
    """Correct the ledger about an entry that lives."""
    if entry == row:
        return entry
    book.remove(entry.token)  # what cannot be read may be there
    restored = msgspec.structs.replace(entry, seq=book.next_seq()) if row is None else entry
    book.add(restored)
    return restored


def living_entry(
    state: location.StateFolder, token: str, row: entries.Entry | None
) -> entries.Entry | None:
    """An entry that lives, as its lease says; as the ledger says, where the lease is still empty.

    After a reboot none does, whatever process has its process id now.
    """
    file = leases.find(state.leases, token)
    if file is None:
        return None
    stated = _stated(file, row)
    if stated is None or stated.boot_id != processes.boot_id():
        return None
    return stated if file.locked or _lives(state, stated) else None


def _stated(file: leases.LeaseFile, row: entries.Entry | None) -> entries.Entry | None:
    """What the lease says, with what others decide: its number, and a grant it has not seen yet."""
    own = file.entry
    if own is None or not entries.sound(own, file.uid):
        return row if row is not None and entries.sound(row, file.uid) else None
    if row is None:
        return own
    given = row if own.grant is None and entries.sound(row, file.uid) else own
    return msgspec.structs.replace(own, seq=row.seq, grant=given.grant, granted_at=given.granted_at)


def _lives(state: location.StateFolder, entry: entries.Entry) -> bool:
    """The lock is gone, but a program may have closed it, and left children behind."""
    if processes.lives(entry.pid, entry.started_ticks):
        return True
    if entry.grant is None:
        return False
    return tenants.running(roots.find(state.fence), entry.tenant) > 0


def is_own(entry: entries.Entry) -> bool:
    """Whether this user may change it."""
    return os.geteuid() in (0, entry.uid)
