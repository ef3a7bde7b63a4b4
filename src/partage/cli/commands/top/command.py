"""``partage top``: what cards and their tenants use, live."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from partage.cli.display import page_output, snapshots
from partage.cli.sources import agent_address, source_choice
from partage.fence.store import roots

_APART_S = 1.0
_EPILOG = f"""\b
Examples:
  partage top                         live; h shows the keys, q quits
  partage top --once | grep training
  partage top --agent http://10.0.0.7:9437
  partage top --root {roots.DEFAULT}     a folder of fences: tenants by name
  partage top -o json | jq '.containers[] | select(.refused > 0) | .pod'
"""


@click.command(epilog=_EPILOG)
@click.option("--once", is_flag=True, help="Print once; the default without a terminal.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="json prints once.",
)
@click.option(
    "--agent",
    metavar="URL",
    help=f"The agent of a node; by default {agent_address.DEFAULT}, if it answers.",
)
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    envvar="PARTAGE_ROOT",
    metavar="DIR",
    help="Read a folder of fences instead of an agent; $PARTAGE_ROOT.",
)
def top(*, once: bool, output: str, agent: str | None, root: Path | None) -> None:
    """Show what cards, containers and programs use now, beside what they asked for.

    The numbers come from the agent of this node if there is one, else from the ledger of this
    machine.

    GOT is the part of the card's time, WAITED the part of the time that launches were held back,
    both in the last second.
    """
    with source_choice.first_snapshot(agent, root) as snapshot:
        if output == "table" and not once and sys.stdout.isatty() and _shown_live(snapshot):
            return
        page_output.show(snapshots.second(snapshot, wait=time.sleep, apart_s=_APART_S), output)


def _shown_live(snapshot: snapshots.Snapshot) -> bool:
    """Show it live, if the terminal can move its cursor; whether it could."""
    from rich import console

    from partage.cli.commands.top import screen

    shown_on = console.Console()
    if shown_on.is_dumb_terminal:
        return False
    screen.show(snapshot, shown_on)
    return True
