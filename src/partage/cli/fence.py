"""``partage fence``: the fences of a machine, what its tenants use, and other limits for them."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from partage.cli import fence_tables
from partage.core import amounts, errors
from partage.core.quantities import MIB
from partage.fence import levels, limits, probing, roots, tenants, usage
from partage.local import places, simulating

_LEVELS = """\b
Examples:
  partage fence levels
  partage fence levels -o json | jq -r '.[] | select(.available) | .level'
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
  partage fence set job-17 --compute 0        its time is not limited any more
  partage fence set job-17 --pause            its launches wait until --resume
"""

_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
_root = click.option(
    "--root",
    type=click.Path(path_type=Path),
    default=roots.DEFAULT,
    show_default=True,
    envvar="PARTAGE_ROOT",
    metavar="DIR",
    help="The folder of the machine's tenants; $PARTAGE_ROOT.",
)


@click.group()
def fence() -> None:
    """What keeps a process inside its share."""


@fence.command("levels", epilog=_LEVELS)
@_output
def levels_command(*, output: str) -> None:
    """Show which fences this machine has, from the strongest, and why not the others."""
    found = probing.probes(_facts())
    if output == "json":
        click.echo(_json([_described(probe) for probe in found]))
        return
    if simulating.on():
        click.echo("this machine (simulated)\n")
    header, *lines = fence_tables.levels(found).splitlines()
    colour = False if os.environ.get("NO_COLOR") else None  # None: on a terminal only
    click.secho(header, bold=True, color=colour)
    for probe, line in zip(found, lines, strict=True):
        click.secho(line, fg="green" if probe.available else "yellow", color=colour)


@fence.command("show", epilog=_SHOW)
@_output
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    envvar="PARTAGE_ROOT",
    metavar="DIR",
    help=f"The folder of the tenants; $PARTAGE_ROOT.  [default: {roots.DEFAULT}, or that of "
    "`partage run`]",
)
@click.argument("tenant", default="")
def show(*, output: str, root: Path | None, tenant: str) -> None:
    """Show what tenants use of their cards, and may use.

    A tenant that cannot be read is shown with the reason, beside the others.
    """
    place = roots.find(root) if root is not None else _here()
    found = [usage.snapshot(place, tenant)] if tenant else usage.everything(place)
    read = [each for each in found if isinstance(each, usage.Usage)]
    unreadable = [each for each in found if isinstance(each, usage.Unreadable)]
    if output == "json":
        click.echo(_json({"tenants": read, "problems": unreadable}))
    elif found:
        click.echo(_headed(place) + fence_tables.usage(read, unreadable))
    else:
        click.echo(f"No tenants under {place.path}.", err=True)


@fence.command("set", epilog=_SET)
@click.option("--memory", metavar="AMOUNT", help="Quota on each card, such as 2GiB.")
@click.option("--compute", metavar="PERCENT", type=int, help="Share of each card's time.")
@click.option("--ceiling", metavar="PERCENT", type=int, help="Use of idle time, up to this.")
@click.option("--mode", type=click.Choice([str(mode) for mode in limits.Mode]), help="Of compute.")
@click.option("--pause/--resume", "paused", default=None, help="Let launches wait, or go on.")
@click.option("--card", metavar="UUID", help="Change it on this card only.")
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
    root: Path,
    tenant: str,
) -> None:
    """Change the limits of a tenant that runs; they hold from its next call.

    For the fence `hook`. A quota below what is in use takes nothing away: it refuses what comes.
    """
    wanted = limits.Change(
        memory_bytes=None if memory is None else amounts.memory_mib("--memory", memory) * MIB,
        compute_percent=compute,
        ceiling_percent=ceiling,
        mode=None if mode is None else limits.Mode(mode),
        paused=paused,
    )
    if wanted == limits.Change():
        raise errors.InputError("nothing to change", instead="add --memory, --compute or --pause")
    place = roots.find(root)
    changed = tenants.change(place, tenant, wanted, uuid=card)
    click.echo(_headed(place) + fence_tables.limits(changed))


def _headed(root: roots.Root) -> str:
    """A line above a table of tenants on simulated cards: nobody is to take them for real ones."""
    return f"{root.path} (simulated)\n\n" if simulating.of(root.path.parent) else ""


def _here() -> roots.Root:
    """The machine's tenants; those of `partage run` if there are none, or cards are simulated."""
    if simulating.on() and (local := places.there(places.where(os.environ))):
        return roots.find(local.fence)
    try:
        return roots.find(roots.DEFAULT)
    except errors.FenceError:
        local = places.there(places.where(os.environ))
        if local is None:
            raise
        return roots.find(local.fence)


def _facts() -> probing.Facts:
    from partage.devices import nvml

    try:
        with nvml.Nvml() as driver:
            version, has_limits = driver.driver_version(), driver.has_memory_limits()
    except errors.DeviceError as error:
        return probing.facts(problem=error.what)
    return probing.facts(version=version, memory_limits=has_limits)


def _described(probe: levels.Probe) -> dict[str, object]:
    holding: dict[str, object] = msgspec.to_builtins(levels.HOLDINGS[probe.level])
    plain: dict[str, object] = msgspec.to_builtins(probe)
    return plain | {"holds": holding}


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
