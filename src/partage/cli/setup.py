"""``partage setup``: one ledger for all users of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from partage.cli import objects
from partage.local import places

_EXAMPLES = """\b
Examples:
  sudo partage setup
  sudo partage setup --user alice --user bob
  sudo partage setup --group lab --state /srv/partage
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--group",
    default=places.GROUP,
    show_default=True,
    metavar="NAME",
    help="Whose members share the cards; made if it is not there.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=places.SHARED,
    show_default=True,
    metavar="DIR",
    help="Where the ledger is kept.",
)
@click.option("--user", "users", multiple=True, metavar="NAME", help="A member from now on.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def setup(*, group: str, state: Path, users: tuple[str, ...], output: str) -> None:
    """Make one ledger for all users of this machine, in the hands of a group; needs root.

    Without it each user has a ledger of his own, and they give away the same cards. Running it
    again repairs what is not as it should be, and disturbs nobody.
    """
    from partage.local import setting_up

    path = state.absolute()
    steps = setting_up.set_up(path, group, users)
    if output == "json":
        done = {"state": str(path), "group": group, "steps": steps}
        click.echo(objects.written("Setup", done))
        return
    for step in steps:
        click.echo(f"{step.object}: {step.result}" + (f" ({step.text})" if step.text else ""))
    click.echo(_next(path, group, users))


def _next(path: Path, group: str, users: tuple[str, ...]) -> str:
    """What is to be done by people."""
    join = "" if users else f"`sudo usermod -aG {group} USER` makes a user a member; "
    named = "" if path == places.SHARED else f" with {places.VARIABLE}={path}"
    return f"Next: {join}members log in again; then `partage doctor`{named} tells what they have."
