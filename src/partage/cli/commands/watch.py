"""``partage watch``: find programs that get around their fence, and act on it if asked to."""

from __future__ import annotations

import os
import time

import click

from partage.cli import notices
from partage.fence.watch.escapes import Then

_EPILOG = """\b
Examples:
  partage watch                     print what is found, until Ctrl-C
  sudo partage watch --then end     and end such processes, of all users
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--then",
    type=click.Choice([action.value for action in Then]),
    default=Then.TELL.value,
    show_default=True,
    help="What to do about a process outside its fence, or its program.",
)
def watch(*, then: str) -> None:
    """Look for programs, and jobs of Slurm, that hold more of a card than their fence counts.

    Prints one line for each process. It need not run all the time: `partage ps` and `partage top`
    look in the same way. Only root can end processes of others.
    """
    from partage.cli.sources import slurm_node
    from partage.local.ledger import session
    from partage.local.view import watch as watching

    jobs = slurm_node.tenants(os.environ)
    with session.opened(os.environ) as opened:
        watching.follow(opened, Then(then), _say, notices.show, jobs)


def _say(text: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')}  {text}")
