"""Names of programs and cards, for completion in a shell.

Whoever presses a key wants a name or nothing: the ledger is only read, none is made, and whatever
goes wrong is told when the command itself is run.
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
    """Those that run, that this user may change, and that begin so."""
    with contextlib.suppress(errors.PartageError, OSError, sqlite3.Error):
        return [item for item in _items() if item.value.startswith(incomplete)]
    return []


def programs(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """What a shell would complete in the place of a command: programs, and files."""
    files = [CompletionItem(incomplete, type="file")]
    if _context.params.get("command") or not incomplete or "/" in incomplete:
        return files
    found: set[str] = set()
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        with contextlib.suppress(OSError):
            found.update(each.name for each in Path(folder or ".").glob(f"{incomplete}*"))
    return [CompletionItem(name) for name in sorted(found)] or files


def cards(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Numbers of cards, or UUIDs once it begins like one."""
    from partage.local import sessions

    by_uuid = incomplete[:1].isalpha()
    with contextlib.suppress(errors.PartageError, OSError), sessions.driver() as driver:
        found = [
            CompletionItem((device.uuid or "") if by_uuid else str(device.index), help=device.model)
            for device in driver.devices()
        ]
        return [item for item in found if item.value.startswith(incomplete)]
    return []


def _items() -> list[CompletionItem]:
    from partage.core import demands
    from partage.local import ledger, places, sweeping

    place = places.there(places.where(os.environ))
    if place is None:
        return []
    living = sweeping.look(place, ledger.rows(place)).living
    return [
        CompletionItem(each.name, help=demands.described(each.demand.containers[0].demand))
        for each in living
        if each.grant is not None and sweeping.mine(each)
    ]
