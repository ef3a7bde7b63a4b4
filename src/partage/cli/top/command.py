"""``partage top``: what the cards of this machine, and those who have a share of them, do, live."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from partage.cli.top import looks, printing, sampling
from partage.fence import roots

_APART_S = 1.0
_EPILOG = f"""\b
Examples:
  partage top                         live; h tells the keys, q quits
  partage top --once | grep training
  partage top --agent http://10.0.0.7:9437
  partage top --root {roots.DEFAULT}     a folder of fences: tenants by name
  partage top -o json | jq '.containers[] | select(.refused > 0) | .pod'
"""


@click.command(epilog=_EPILOG)
@click.option("--once", is_flag=True, help="Print once; also what is done where no terminal is.")
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
    help=f"The agent of a node; {sampling.DEFAULT_AGENT} if it answers.",
)
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    envvar="PARTAGE_ROOT",
    metavar="DIR",
    help="A folder of fences to read in place of an agent; $PARTAGE_ROOT.",
)
def top(*, once: bool, output: str, agent: str | None, root: Path | None) -> None:
    """Show what cards, containers and programs use now, beside what they asked for.

    The agent of this node tells it, if there is one; else the ledger of this machine.

    GOT is the time of the card, WAITED the time that launches were held back, both in the last
    second.
    """
    with sampling.first_look(agent, root) as look:
        if output == "table" and not once and sys.stdout.isatty() and _lived(look):
            return
        printing.show(looks.twice(look, wait=time.sleep, apart_s=_APART_S), output)


def _lived(look: looks.Look) -> bool:
    """Whether it was shown on a terminal that can move its cursor."""
    from rich import console

    from partage.cli.top import screen

    shown_on = console.Console()
    if shown_on.is_dumb_terminal:
        return False
    screen.show(look, shown_on)
    return True
