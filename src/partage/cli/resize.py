"""``partage resize``: change the share of a program that runs."""

from __future__ import annotations

import os
from typing import Any

import click

from partage.cli import names, objects
from partage.core import errors, grants

_EXAMPLES = """\b
Examples:
  partage resize train --memory 6GiB
  partage resize train --compute 50%          from now on, never above it
  partage resize train --compute 30%:80%      30 %, and idle time up to 80 %
"""


@click.command(epilog=_EXAMPLES)
@click.option("--memory", metavar="AMOUNT", help="Of each of its cards: 6GiB, or 25%.")
@click.option("--compute", metavar="PCT[:CEILING]", help="Of each of its cards' time: 30%:80%.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.argument("name", shell_complete=names.complete)
def resize(*, memory: str | None, compute: str | None, output: str, name: str) -> None:
    """Change the share of a program that runs, if its cards have room; it holds from its next call.

    Memory can be lowered only to what is in use.
    """
    from partage.local import requests, resizing, sessions

    if memory is None and compute is None:
        raise errors.InputError("nothing to change", instead="add --memory or --compute")
    changes: dict[str, Any] = {}
    if memory is not None:
        changes |= requests.memory(memory)
    if compute is not None:
        changes |= requests.compute(compute)
    with sessions.opened(os.environ) as here:
        resized = resizing.resize(here, name, changes)
    if output == "json":
        click.echo(objects.written("Resize", resized))
        return
    for old, new in zip(resized.before.shares, resized.after.shares, strict=True):
        was, is_now = _text(resized.before, old), _text(resized.after, new)
        click.echo(f"{name}: card {new.index}: {was} -> {is_now}")
    if not resized.held:
        click.echo(f"warning: nothing holds {name} to it: its fence is advisory", err=True)


def _text(container: grants.ContainerGrant, share: grants.Share) -> str:
    """What it has of a card, as ``partage ps`` shows it."""
    from partage.cli.top import grid
    from partage.fence import tallies

    memory = f"{share.memory_mib} MiB" if share.memory_mib else "all memory"
    if not share.compute_percent:
        return memory
    mode, ceiling = tallies.asked(container, timed=True)
    return f"{memory}, {grid.asked(mode, share.compute_percent, ceiling).text}"
