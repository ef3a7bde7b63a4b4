"""``partage ps``: the programs that have cards of this machine, and those that wait."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from partage.cli.display import page_output, pages, snapshots
from partage.local.view import views

_APART_S = 0.5
_EPILOG = """\b
Examples:
  partage ps                  cards, tenants, the queue
  partage ps -o wide          in MiB, with reasons, process ids, commands
  partage ps | grep alice
  partage ps -o json | jq '.tenants[] | select(.job == 4711) | .used_bytes'
  partage ps -o json | jq '.tenants[] | select(.refused > 0) | .name'
"""


@click.command(epilog=_EPILOG)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json"]),
    default="table",
    show_default=True,
)
def ps(*, output: str) -> None:
    """Show the cards of this machine, the programs with a share of them, and the queue.

    Jobs of Slurm are there, too; a step of a job is a part of it. COMPUTE of a program is its part
    of the card's time in the last half second, and what it asked for. N/A is what is not known.
    """
    from partage.cli.sources import this_machine

    with this_machine.opened() as taken:
        show(taken, output, wait=time.sleep)


def show(taken: Callable[[], views.View], output: str, *, wait: Callable[[float], object]) -> None:
    """Print it; ``wait`` lets time pass between two views."""
    snapshot = snapshots.second(snapshots.of_machine(taken), wait=wait, apart_s=_APART_S)
    page_output.show(snapshot, output, pages.Form.WIDE if output == "wide" else pages.Form.NARROW)
