"""What is done on a node for jobs: before the first, after each, and what they used."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from partage.cli import notices
from partage.cli.display import json_objects, tables
from partage.core import errors
from partage.devices import nvml
from partage.slurm import slurm_programs
from partage.slurm.checks import machine_facts
from partage.slurm.configuration import config_files, node_paths
from partage.slurm.jobs import job_accounting, job_end, job_usage
from partage.slurm.node import card_table, node_preparation

_PREPARE = """\b
Examples:
  partage slurm prepare
  partage slurm prepare --conf /srv/slurm
"""
_EPILOG = """\b
Examples:
  partage slurm epilog             as Slurm's Epilog, which has SLURM_JOB_ID
  partage slurm epilog --job 4711  what a job left that has ended
"""
_USAGE = """\b
Examples:
  partage slurm usage 4711
  partage slurm usage 4711 -o json | jq '.uses[].cards[].peak_bytes'
"""
_UNITS = ((30, "GiB"), (20, "MiB"))
_JOB_NUMBER = re.compile(r"[1-9][0-9]{0,9}")
_PART_OF_JOB = re.compile(r"[0-9]+[_+][0-9]+")  # of an array, or of a heterogeneous job


class _Job(click.ParamType[int]):
    """The number of a job; Python would read 12_3, a part of an array, as 123."""

    name = "job"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """As Slurm counts; raises what click shows."""
        text = str(value)
        if _PART_OF_JOB.fullmatch(text):
            self.fail(
                f"{text} has a number of its own, which `sacct -X -j {text} -o JobIDRaw` shows",
                param,
            )
        if not _JOB_NUMBER.fullmatch(text):
            self.fail(f"{text!r} is not the number of a job", param)
        return int(text)


def _folder(*names: str, default: Path, text: str) -> Callable[[Any], Any]:
    return click.option(
        *names,
        type=click.Path(path_type=Path),
        default=default,
        show_default=True,
        metavar="DIR",
        help=text,
    )


_root = _folder("--root", default=node_paths.ROOT, text="Folder for the fences of jobs.")
_log = _folder("--log-folder", default=job_usage.FOLDER, text="Folder of what jobs used.")


_conf = click.option(
    "--conf",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"The folder of slurm.conf.  [default: $SLURM_CONF, or {node_paths.CONFIG}]",
)


@click.command("prepare", epilog=_PREPARE)
@_conf
@click.option(
    "--node",
    envvar="SLURMD_NODENAME",
    default="",
    metavar="NAME",
    help="Which node of slurm.conf this machine is, if it is several; $SLURMD_NODENAME.",
)
@_root
@_folder(
    "--library-folder",
    default=node_preparation.LIBRARIES,
    text="Folder for the fence's library.",
)
def prepare(*, conf: Path | None, node: str, root: Path, library_folder: Path) -> None:
    """Make this node ready to hold jobs to their shares; again after each change of gres.conf.

    It writes the table of cards for the plugin of Slurm, installs the fence's library, and makes
    /etc/partage and an empty /etc/ld.so.preload, where files are mounted that only jobs see.
    """
    from partage.local.ledger import session

    session.unfence(os.environ)
    configuration = config_files.read(node_paths.main_file(conf, os.environ))
    with session.driver() as driver:
        table = node_preparation.prepare(
            configuration,
            driver.devices(),
            node=node,
            places=node_preparation.Places(root=root, libraries=library_folder),
            measure=functools.partial(_context_bytes, driver),
            environ=os.environ,
        )
    _tell(table, root)


@click.command("epilog", epilog=_EPILOG)
@click.option("--job", envvar="SLURM_JOB_ID", type=_Job(), required=True, metavar="JOB")
@_conf
@_root
@_log
def epilog(*, job: int, conf: Path | None, root: Path, log_folder: Path) -> None:
    """Write down what a job used, and remove its fence; Slurm's Epilog calls this.

    Where Slurm has accounting, the job's AdminComment says it, too.
    """
    from partage.fence.store import roots

    if not (root / "tenants").exists():
        return
    node = os.environ.get("SLURMD_NODENAME") or machine_facts.hosts()[0]
    try:
        ending = job_end.finish(roots.find(root), job, log_folder, node=node)
    except OSError as error:
        raise errors.FenceError(
            f"{error.filename or root} cannot be written ({error.strerror})",
            instead="run this as root, and check that its file system has room",
        ) from error
    if ending is None:
        return
    _account(ending.use, conf)
    if ending.not_logged:
        raise errors.FenceError(
            f"the use of job {job} is not in the log: {ending.not_logged}",
            instead="run this as root, and make room in that file system",
        )


@click.command("usage", epilog=_USAGE)
@click.argument("job", type=_Job())
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@_log
def usage(*, job: int, output: str, log_folder: Path) -> None:
    """Show what a job that has ended used of its cards on this node.

    With -o json: an object of kind SlurmUsage.
    """
    try:
        uses = job_usage.of_job(log_folder, job)
    except OSError as error:
        raise errors.FenceError(
            f"{error.filename} cannot be read ({error.strerror})",
            instead="run this as root, with the right --log-folder",
        ) from error
    if not uses:
        raise errors.InputError(
            f"nothing is known of job {job} on this node",
            instead="ask on the node where it ran, after it has ended; "
            "jobs without a part of a card leave no record",
        )
    if output == "json":
        click.echo(json_objects.written("SlurmUsage", {"job": job, "uses": uses}))
        return
    header = ("NODE", "CARD", "QUOTA", "PEAK", "REFUSED", "CARD TIME", "WAITED")
    click.echo(tables.aligned([header, *(row for use in uses for row in _rows(use))]))
    for use in uses:
        if use.problem:
            notices.note(tables.printable(use.problem))


def _account(use: job_usage.JobUse, conf: Path | None) -> None:
    """The log has it already: what does not answer is told, and the job has ended all the same."""
    slurm = config_files.read(node_paths.main_file(conf, os.environ)).slurm
    if not job_accounting.is_there(slurm):
        return
    try:
        written = job_accounting.record(use, job_accounting.turn(use.node, os.environ))
    except slurm_programs.SlurmError as error:
        notices.note(f"the use of job {use.job} is not in Slurm's accounting: {error.what}")
        return
    if not written:
        notices.note(
            f"the use of job {use.job} is not in Slurm's accounting: its AdminComment has no "
            "room, could not be kept as it is, or was written by other nodes all the time"
        )


def _context_bytes(driver: nvml.Nvml, uuid: str) -> int | None:
    from partage.devices import context_measurement

    try:
        return context_measurement.context_bytes(driver, uuid)
    except errors.DeviceError as error:
        notices.note(f"{error.what}; until then, contexts are not counted")
        return None


def _tell(table: card_table.Table, root: Path) -> None:
    for card in table.cards:
        shares = f"{card.shares} {table.sharing}"
        click.echo(f"card {card.number}  {card.uuid}  {_size(card.memory_bytes)}, {shares}")
    for silent in table.silent:
        notices.note(
            f"card {silent.number} ({silent.file}) does not answer ({silent.problem}), and jobs on "
            "it are not started; run this again when it is back"
        )
    if not table.places:
        notices.note("the driver's libraries were not found; jobs are held by the preload alone")
    click.echo(f"{root / card_table.NAME} is written: jobs can be held to their {table.sharing}s")


def _rows(use: job_usage.JobUse) -> list[tuple[str, ...]]:
    return [
        (
            tables.printable(use.node),
            card.uuid,
            "-" if card.quota_bytes is None else _size(card.quota_bytes),
            _size(card.peak_bytes),
            str(card.refused),
            f"{card.busy_ns / 1e9:.1f} s",
            f"{card.throttled_ns / 1e9:.1f} s",
        )
        for card in use.cards
    ]


def _size(size_bytes: int) -> str:
    for shift, unit in _UNITS:
        if size_bytes >> shift:
            return f"{size_bytes / (1 << shift):.4g} {unit}"
    return f"{size_bytes} B"
