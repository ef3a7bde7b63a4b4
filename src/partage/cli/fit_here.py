"""``partage fit`` on this machine: what would become of a request, in words or as JSON."""

from __future__ import annotations

import os

import click

from partage.cli import objects
from partage.local import prospects, requests, sessions


def answer(wishes: requests.Wishes, output: str) -> bool:
    """Print what would become of it; whether it would start now."""
    requests.check(wishes)
    with sessions.opened(os.environ) as here:
        found = prospects.prospect(here, wishes)
    if output == "json":
        click.echo(objects.written("Prospect", found))
    else:
        click.echo("\n".join(lines(found)))
    return found.fits


def lines(found: prospects.Prospect) -> list[str]:
    """The answer first."""
    asked = f"{found.asks}{' (simulated)' if found.simulated else ''}"
    if found.fits:
        indexes = ", ".join(map(str, found.cards))
        return [f"{asked}: fits now, on card{'s' * (len(found.cards) > 1)} {indexes}"]
    if not found.ever:
        return [f"{asked}: never fits on this machine", f"  {found.reason}"]
    told = [f"{asked}: does not fit now; it would be number {found.place} in the queue"]
    told.append(f"  {found.reason}")
    if found.held_by:
        told.append(f"  in the way: {', '.join(found.held_by)}")
    return told
