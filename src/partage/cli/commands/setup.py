"""``partage setup``: one ledger for all users of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from partage.cli.display import json_objects
from partage.local.state import location

_EXAMPLES = """\b
Examples:
  sudo partage setup
  sudo partage setup --user alice --user bob
  sudo partage setup --group lab --state /srv/partage
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--group",
    default=location.GROUP,
    show_default=True,
    metavar="NAME",
    help="The group whose members share the cards; made if missing.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=location.SHARED,
    show_default=True,
    metavar="DIR",
    help="Where the ledger is kept.",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="NAME",
    help="Make this user a member; can be repeated.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def setup(*, group: str, state: Path, users: tuple[str, ...], output: str) -> None:
    """Make one ledger for all users of this machine, shared by a group; needs root.

    Without it each user has their own ledger, and all of them grant the same cards. Running it
    again repairs what is wrong, and disturbs no program.
    """
    from partage.local.ledger import shared_setup

    path = state.absolute()
    steps = shared_setup.set_up(path, group, users)
    if output == "json":
        done = {"state": str(path), "group": group, "steps": steps}
        click.echo(json_objects.written("Setup", done))
        return
    for step in steps:
        click.echo(f"{step.object}: {step.result}" + (f" ({step.text})" if step.text else ""))
    click.echo(_next(path, group, users))


def _next(path: Path, group: str, users: tuple[str, ...]) -> str:
    """What the administrator has to do now."""
    join = "" if users else f"`sudo usermod -aG {group} USER` makes a user a member; "
    of_machine = path in (location.SHARED, location.named_by_root())
    named = "" if of_machine else f" with {location.VARIABLE}={path}"
    return f"Next: {join}members log in again; then `partage doctor`{named} shows what they have."
