"""``partage watch``: look at what gets around its fence, and do something about it."""

from __future__ import annotations

import os
import time

import click

from partage.fence.watch.facts import Then

_EPILOG = """\b
Examples:
  partage watch                     say it, until Ctrl-C
  sudo partage watch --then end     and end such processes, of all users
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--then",
    type=click.Choice([each.value for each in Then]),
    default=Then.TELL.value,
    show_default=True,
    help="What is done about a process outside its fence, or its program.",
)
def watch(*, then: str) -> None:
    """Look for programs that hold more of a card than their fence counts.

    One line for each process that is found. Nothing has to run for that: `partage ps` and `partage
    top` look in the same way. Processes of others can be ended by root only.
    """
    from partage.local import sessions
    from partage.local import watch as watching

    with sessions.opened(os.environ) as here:
        watching.follow(here, Then(then), _say)


def _say(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')}  {text}")
