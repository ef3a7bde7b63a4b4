"""Names of programs and cards, for completion in a shell.

A user who presses a key wants a name or nothing: the ledger is only read, none is made, and errors
are shown when the command itself is run.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from partage.core import errors


def complete(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Running programs that this user may change, and whose name begins so."""
    with contextlib.suppress(errors.PartageError, OSError, sqlite3.Error):
        return [item for item in _items() if item.value.startswith(incomplete)]
    return []


def programs(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """What a shell would complete where a command is expected: programs, and files."""
    files = [CompletionItem(incomplete, type="file")]
    if _context.params.get("command") or not incomplete or "/" in incomplete:
        return files
    names: set[str] = set()
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        with contextlib.suppress(OSError):
            names.update(file.name for file in Path(folder or ".").glob(f"{incomplete}*"))
    return [CompletionItem(name) for name in sorted(names)] or files


def cards(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Indexes of cards, or UUIDs if the text begins like one."""
    from partage.local.ledger import session

    by_uuid = incomplete[:1].isalpha()
    with contextlib.suppress(errors.PartageError, OSError), session.driver() as driver:
        items = [
            CompletionItem((device.uuid or "") if by_uuid else str(device.index), help=device.model)
            for device in driver.devices()
        ]
        return [item for item in items if item.value.startswith(incomplete)]
    return []


def _items() -> list[CompletionItem]:
    from partage.core import demands
    from partage.local.ledger import ledger, liveness
    from partage.local.state import location

    place = location.existing(location.where(os.environ))
    if place is None:
        return []
    living = liveness.look(place, ledger.rows(place)).living
    return [
        CompletionItem(entry.name, help=demands.described(entry.demand.containers[0].demand))
        for entry in living
        if entry.grant is not None and liveness.is_own(entry)
    ]
