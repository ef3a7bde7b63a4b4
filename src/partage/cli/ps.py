"""``partage ps``: who has which card of this machine, how much of it, and who waits."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from partage.cli.top import looks, pages, printing
from partage.local import views

_APART_S = 0.5
_EPILOG = """\b
Examples:
  partage ps                  cards, tenants, the queue
  partage ps -o wide          in MiB; why one waits, process ids, commands
  partage ps | grep alice
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
    """Show the cards of this machine, who has a share of them, and who waits for one.

    COMPUTE of a program is the time of the card in the last half second, and what it asked for.
    N/A is what nobody can tell.
    """
    from partage.local import viewing

    with viewing.opened() as taken:
        show(taken, output, wait=time.sleep)


def show(taken: Callable[[], views.View], output: str, *, wait: Callable[[float], object]) -> None:
    """Print it; ``wait`` lets time pass between two views."""
    look = looks.twice(looks.of_machine(taken), wait=wait, apart_s=_APART_S)
    printing.show(look, output, pages.Form.WIDE if output == "wide" else pages.Form.NARROW)
