"""``partage fence``: the fences of a machine, what its tenants use, and other limits for them."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from partage.cli import notices
from partage.cli.display import fence_tables, json_objects
from partage.core import amounts, errors
from partage.core.quantities import MIB
from partage.fence import usage
from partage.fence.levels import availability, catalog
from partage.fence.store import limits, roots, tenants
from partage.local.ledger import liveness
from partage.local.machine import simulated_driver
from partage.local.state import location

_LEVELS = """\b
Examples:
  partage fence levels
  partage fence levels -o json | jq -r '.levels[] | select(.available).level'
"""
_SHOW = """\b
Examples:
  partage fence show
  partage fence show job-17 -o json | jq '.tenants[0].cards[0].peak_bytes'
"""
_SET = """\b
Examples:
  partage fence set job-17 --memory 2GiB
  partage fence set job-17 --compute 30 --ceiling 80
  partage fence set job-17 --compute 0        no limit on its time from now on
  partage fence set job-17 --pause            its launches wait until --resume
"""

_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
_root = click.option(
    "--root",
    type=click.Path(path_type=Path),
    envvar="PARTAGE_ROOT",
    metavar="DIR",
    help=f"The folder of the tenants; $PARTAGE_ROOT.  [default: {roots.DEFAULT}, or that of "
    "`partage run`]",
)


@click.group()
def fence() -> None:
    """What keeps a process inside its share."""


@fence.command("levels", epilog=_LEVELS)
@_output
def levels_command(*, output: str) -> None:
    """Show which fences can be put up on this machine, from the strongest, and why not the others.

    With -o json: an object of kind FenceLevels.
    """
    probes = availability.probes()
    if output == "json":
        described = [_described(probe) for probe in probes]
        click.echo(json_objects.written("FenceLevels", {"levels": described}))
        return
    if simulated_driver.on():
        click.echo("this machine (simulated)\n")
    header, *lines = fence_tables.levels(probes).splitlines()
    colour = False if os.environ.get("NO_COLOR") else None  # None: on a terminal only
    click.secho(header, bold=True, color=colour)
    for probe, line in zip(probes, lines, strict=True):
        click.secho(line, fg="green" if probe.available else "yellow", color=colour)


@fence.command("show", epilog=_SHOW)
@_output
@_root
@click.argument("tenant", default="")
def show(*, output: str, root: Path | None, tenant: str) -> None:
    """Show what tenants use of their cards, and what they may use.

    A tenant that cannot be read is listed with the reason. A program that has ended is shown only
    if it is named, until the next `partage run` clears up after it. With -o json: an object of kind
    FenceUsage.
    """
    fences = _chosen_root(root)
    answers = [usage.snapshot(fences, tenant)] if tenant else _present(fences)
    read = [answer for answer in answers if isinstance(answer, usage.Usage)]
    unreadable = [answer for answer in answers if isinstance(answer, usage.Unreadable)]
    if output == "json":
        click.echo(json_objects.written("FenceUsage", {"tenants": read, "problems": unreadable}))
    elif answers:
        click.echo(_heading(fences) + fence_tables.usage(read, unreadable))
    else:
        click.echo(f"No tenants under {fences.path}.", err=True)


@fence.command("set", epilog=_SET)
@click.option("--memory", metavar="AMOUNT", help="Quota on each card, such as 2GiB.")
@click.option("--compute", metavar="PERCENT", type=int, help="Share of each card's time.")
@click.option("--ceiling", metavar="PERCENT", type=int, help="Use idle time up to this share.")
@click.option(
    "--mode", type=click.Choice([str(mode) for mode in limits.Mode]), help="How compute is limited."
)
@click.option("--pause/--resume", "paused", default=None, help="Hold launches, or let them go on.")
@click.option("--card", metavar="UUID", help="Change the limits of this card only.")
@_root
@click.argument("tenant")
def set_command(
    *,
    memory: str | None,
    compute: int | None,
    ceiling: int | None,
    mode: str | None,
    paused: bool | None,
    card: str | None,
    root: Path | None,
    tenant: str,
) -> None:
    """Change the limits of a running tenant; they hold from its next call.

    For the fence `hook`. A quota below what is in use takes nothing away: it refuses further
    allocations.
    """
    change = limits.Change(
        memory_bytes=None if memory is None else amounts.memory_mib("--memory", memory) * MIB,
        compute_percent=compute,
        ceiling_percent=ceiling,
        mode=None if mode is None else limits.Mode(mode),
        paused=paused,
    )
    if change == limits.Change():
        raise errors.InputError("nothing to change", instead="add --memory, --compute or --pause")
    fences = _chosen_root(root)
    changed = tenants.change(fences, tenant, change, uuid=card)
    click.echo(_heading(fences) + fence_tables.limits(changed))
    if change != limits.Change(paused=paused) and _state_folder(fences):
        name = tenant.rpartition(".")[0]
        notices.note(
            f"`partage ps` and the queue still count what {name} was granted; "
            f"`partage resize {name}` changes that together with its limits"
        )


def _heading(root: roots.Root) -> str:
    """A line above a table of tenants on simulated cards: nobody is to take them for real ones."""
    return f"{root.path} (simulated)\n\n" if simulated_driver.is_marked(root.path.parent) else ""


def _present(root: roots.Root) -> list[usage.Usage | usage.Unreadable]:
    """All tenants but programs that have ended; an agent removes those of containers itself."""
    state = _state_folder(root)
    if state is None:
        return usage.everything(root)
    ended = set(liveness.leftover_tenants(state, liveness.look(state, ()).ended))
    return [tenant for tenant in usage.everything(root) if tenant.tenant not in ended]


def _state_folder(root: roots.Root) -> location.StateFolder | None:
    """The state folder of `partage run`, if these tenants are programs in its ledger."""
    if root.path.name != "fence" or not (root.path.parent / "leases").is_dir():
        return None
    return location.existing(root.path.parent)


def _chosen_root(root: Path | None) -> roots.Root:
    """The tenants that are meant.

    Without an option these are the machine's; those of `partage run` if there are none, or cards
    are simulated.
    """
    if root is not None:
        return roots.find(root)
    if simulated_driver.on() and (local := location.existing(location.where(os.environ))):
        return roots.find(local.fence)
    try:
        return roots.find(roots.DEFAULT)
    except errors.FenceError:
        local = location.existing(location.where(os.environ))
        if local is None:
            raise
        return roots.find(local.fence)


def _described(probe: catalog.Probe) -> dict[str, object]:
    holding: dict[str, object] = msgspec.to_builtins(catalog.HOLDINGS[probe.level])
    plain: dict[str, object] = msgspec.to_builtins(probe)
    return plain | {"holds": holding}
