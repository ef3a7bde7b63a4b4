"""``partage resize``: change the share of a running program."""

from __future__ import annotations

import os
from typing import Any

import click

from partage.cli import name_completion, notices, share_options
from partage.cli.display import json_objects
from partage.core import errors, grants

_EXAMPLES = """\b
Examples:
  partage resize train --memory 6GiB
  partage resize train --compute 50%          from now on, and never above
  partage resize train --compute 30%:80%      30 %, and idle time up to 80 %
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--memory", metavar="AMOUNT", help="Of each of its cards: 6GiB, or 25%; the new total."
)
@click.option("--compute", metavar="PCT[:CEILING]", help="Of each of its cards' time: 30%:80%.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.argument("name", shell_complete=name_completion.complete)
def resize(*, memory: str | None, compute: str | None, output: str, name: str) -> None:
    """Change the share of a running program, if its cards have room; it holds from the next call.

    Memory cannot be lowered below what is in use.
    """
    from partage.local.ledger import session
    from partage.local.requests import requests
    from partage.local.run import resizing

    if memory is None and compute is None:
        raise errors.InputError("nothing to change", instead="add --memory or --compute")
    changes: dict[str, Any] = {}
    if memory is not None:
        changes |= requests.memory(memory)
        share_options.warn_decimal(memory)
    if compute is not None:
        changes |= requests.compute(compute)
    with session.opened(os.environ) as opened:
        resized = resizing.resize(opened, name, changes)
    if output == "json":
        click.echo(json_objects.written("Resize", resized))
        return
    for old, new in zip(resized.before.shares, resized.after.shares, strict=True):
        was, is_now = _text(resized.before, old), _text(resized.after, new)
        click.echo(f"{name}: card {new.index}: {was} -> {is_now}")
    if not resized.held:
        notices.show(f"warning: nothing keeps {name} to its share: its fence is advisory")


def _text(container: grants.ContainerGrant, share: grants.Share) -> str:
    """What it has of a card, as ``partage ps`` shows it."""
    from partage.cli.display import table_cells
    from partage.fence import usage_rows

    memory = f"{share.memory_mib} MiB" if share.memory_mib else "all memory"
    if not share.compute_percent:
        return memory
    mode, ceiling = usage_rows.mode_asked(container, timed=True)
    return f"{memory}, {table_cells.asked(mode, share.compute_percent, ceiling).text}"
