"""The plugin put into Slurm on a node, and taken out again."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from partage.cli import notices
from partage.core import errors
from partage.fence.library import libpartage
from partage.slurm import installation, slurm_programs
from partage.slurm.checks import fence_checks, machine_facts
from partage.slurm.configuration import config_files, node_paths, submit_rule

_INSTALL = """\b
Examples:
  partage slurm install --dry-run
  partage slurm install
  partage slurm install --conf /srv/slurm --compute share
"""
_UNINSTALL = """\b
Examples:
  partage slurm uninstall --dry-run
  partage slurm uninstall
"""


def _places(command: Callable[..., None]) -> Callable[..., None]:
    options: list[Callable[[Any], Any]] = [
        click.option(
            "--conf",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help=f"The folder of slurm.conf.  [default: $SLURM_CONF, or {node_paths.CONFIG}]",
        ),
        click.option(
            "--folder",
            type=click.Path(path_type=Path),
            default=installation.FOLDER,
            show_default=True,
            metavar="DIR",
            help="Folder for the plugin and the scripts.",
        ),
        click.option(
            "--dry-run", is_flag=True, help="Print what would change, and change nothing."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command("install", epilog=_INSTALL)
@_places
@click.option(
    "--compute",
    type=click.Choice(["none", "share", "burst"]),
    default="burst",
    show_default=True,
    help="A job's time on the card: not limited, never above its share, or more while it is idle.",
)
def install(*, conf: Path | None, folder: Path, dry_run: bool, compute: str) -> None:
    """Put the plugin into Slurm on this node, with its line in plugstack.conf, Prolog and Epilog.

    Where slurmctld runs, it also puts a rule beside slurm.conf (job_submit.lua), which refuses at
    submission what would never run. Run it there again when gres.conf has changed: the rule is made
    from that.

    Files of Slurm that change are kept beside themselves with the ending .before-partage.
    """
    place = _place(conf, folder)
    if not place.main.is_file():
        raise errors.InputError(
            f"there is no file {place.main}", instead="name the folder of slurm.conf with --conf"
        )
    plan = installation.installing(place, _plugin(), compute)
    _carry_out(plan, dry_run=dry_run)
    for note in plan.notes:
        notices.note(note)
    if plan.changes and not dry_run:
        click.echo(
            "now run `partage slurm prepare`, then restart slurmd; and slurmctld, if it is here"
        )


@click.command("uninstall", epilog=_UNINSTALL)
@_places
def uninstall(*, conf: Path | None, folder: Path, dry_run: bool) -> None:
    """Take out of Slurm what install put in; other lines and files stay as they are.

    It takes two runs. The first takes our lines out of Slurm's files: steps that start from then on
    are not held, so drain the node before. When slurmd has been restarted, the second removes the
    plugin and the scripts.
    """
    plan = installation.uninstalling(_place(conf, folder))
    _carry_out(plan, dry_run=dry_run)
    for note in plan.notes:
        notices.note(note)


def _place(conf: Path | None, folder: Path) -> installation.Installation:
    main = node_paths.main_file(conf, os.environ).absolute()
    programs = Path(shutil.which("scontrol") or "/usr/bin/scontrol").parent
    slurm = config_files.read(main).slurm
    plugins, _ = slurm.setting("PluginDir")
    return installation.Installation(
        main=main,
        folder=folder.absolute(),
        command=Path(sys.executable).with_name("partage"),
        programs=programs,
        version=slurm_programs.version(),
        has_lua=machine_facts.has_slurm_plugin("job_submit_lua", plugins, programs),
        is_controller=submit_rule.is_controller(slurm, machine_facts.hosts()),
    )


def _plugin() -> bytes:
    path = libpartage.folder() / "spank" / fence_checks.PLUGIN
    try:
        return path.read_bytes()
    except OSError as error:
        raise errors.FenceError(
            f"this installation of Partage has no plugin of Slurm ({path}: {error.strerror})",
            instead="install Slurm's headers (Debian: libslurm-dev) and a C compiler, then build "
            "the plugin in a checkout: `python -m native spank`",
        ) from error


def _carry_out(plan: installation.Plan, *, dry_run: bool) -> None:
    if not plan.changes:
        click.echo("nothing has to be changed")
    elif dry_run:
        click.echo(installation.difference(plan), nl=False)
    else:
        installation.apply(plan)
        for change in plan.changes:
            verb = "removed" if change.after is None else "written"
            click.echo(f"{verb}  {change.path}")
