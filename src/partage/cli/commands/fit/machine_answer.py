"""The answer of ``partage fit`` about this machine, in words or as JSON."""

from __future__ import annotations

import os

import click

from partage.cli.display import json_objects
from partage.local.ledger import session
from partage.local.queue import prospect
from partage.local.requests import card_access, requests


def answer(wishes: requests.Wishes, output: str, gate: card_access.Gate) -> bool:
    """Print whether a share would fit, now or ever; returns whether it would start now."""
    requests.check(wishes)
    with session.opened(os.environ) as opened:
        forecast = prospect.prospect(opened, wishes, gate)
    if output == "json":
        click.echo(json_objects.written("Prospect", forecast))
    else:
        click.echo("\n".join(lines(forecast)))
    return forecast.fits


def lines(forecast: prospect.Prospect) -> list[str]:
    """The answer first."""
    share = f"{forecast.asks}{' (simulated)' if forecast.simulated else ''}"
    if forecast.fits:
        indexes = ", ".join(map(str, forecast.cards))
        return [f"{share}: fits now, on card{'s' * (len(forecast.cards) > 1)} {indexes}"]
    if not forecast.ever:
        return [f"{share}: never fits on this machine", f"  {forecast.reason}"]
    texts = [f"{share}: does not fit now; it would be number {forecast.place} in the queue"]
    texts.append(f"  {forecast.reason}")
    if forecast.held_by:
        texts.append(f"  in the way: {', '.join(forecast.held_by)}")
    return texts
