"""``partage slurm``: Slurm's configuration written and examined, and who has which card."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

from partage.cli import notices
from partage.cli.commands.slurm import installation_commands, job_commands
from partage.cli.display import json_objects, tables
from partage.core import errors
from partage.devices import nvml
from partage.slurm import slurm_programs
from partage.slurm.checks import configuration_check, machine_facts
from partage.slurm.configuration import config_files, findings, gres, gres_lines, node_paths
from partage.slurm.jobs import cluster_cards

_GRES_CONF = """\b
Examples:
  partage slurm gres-conf
  partage slurm gres-conf --share mps
  partage --simulate 16GiB,24GiB:A30 slurm gres-conf
  partage slurm gres-conf -o json | jq -r '.gres_conf[]'
"""
_CHECK = """\b
Examples:
  partage slurm check
  partage slurm check --conf /srv/slurm
  partage slurm check -o json | jq '.findings[].problem'

\b
Exit codes: 0 if there is no problem, 1 if there is one.
"""
_NODES = """\b
Examples:
  partage slurm nodes
  partage slurm nodes -o wide     with states of nodes and names of jobs
  partage slurm nodes -o json | jq '.cards[] | select(.jobs == [])'
"""
_COLOURS = {findings.Severity.NOTE: "yellow", findings.Severity.PROBLEM: "red"}
_MOST_PER_GIB = 64

_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)


@click.group()
def slurm() -> None:
    """Let Slurm share cards, and hold its jobs to their shares."""


for _command in (
    installation_commands.install,
    installation_commands.uninstall,
    job_commands.prepare,
    job_commands.epilog,
    job_commands.usage,
):
    slurm.add_command(_command)


@slurm.command("gres-conf", epilog=_GRES_CONF)
@click.option(
    "--share",
    type=click.Choice(gres.SHARINGS),
    default=gres.SHARD,
    show_default=True,
    help="Whether jobs ask for shards of a card, or for percent of it.",
)
@click.option(
    "--shards-per-gib",
    type=click.IntRange(1, _MOST_PER_GIB),
    default=1,
    show_default=True,
    metavar="N",
    help="How many shards a GiB of a card's memory is.",
)
@_output
def gres_conf(*, share: str, shards_per_gib: int, output: str) -> None:
    """Print lines about this machine's cards.

    They belong into gres.conf and slurm.conf. Each card has its own line, by its device file. With
    -o json: an object of kind SlurmGresLines.
    """
    lines = gres_lines.lines(
        _devices(),
        node=machine_facts.hosts()[0],
        sharing=share,
        shards_per_gib=shards_per_gib,
    )
    if output == "json":
        click.echo(json_objects.written("SlurmGresLines", lines))
    else:
        click.echo("\n".join(_written(lines)))
    for card in lines.left_out:
        notices.note(f"card {card.index} is left out: {tables.printable(card.reason)}")


@slurm.command("check", epilog=_CHECK)
@click.option(
    "--conf",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"The folder of slurm.conf.  [default: $SLURM_CONF, or {node_paths.CONFIG}]",
)
@_output
@click.pass_context
def check(context: click.Context, /, *, conf: Path | None, output: str) -> None:
    """Say what is wrong in Slurm's configuration.

    Line by line, and what to write instead. It reads slurm.conf, gres.conf, cgroup.conf and
    plugstack.conf, and compares them with the cards and the version of Slurm. It changes nothing.
    With -o json: an object of kind SlurmCheck.
    """
    main = node_paths.main_file(conf, os.environ)
    configuration = config_files.read(main)
    devices, reason = _devices_or_reason()
    facts = configuration_check.facts_for(
        configuration,
        hosts=machine_facts.hosts(),
        version=slurm_programs.version(),
        devices=devices,
        no_devices=reason,
    )
    results = configuration_check.check(configuration, facts)
    if output == "json":
        version = str(facts.version) if facts.version else None
        report = {"file": str(main), "version": version, "findings": results}
        click.echo(json_objects.written("SlurmCheck", report))
    else:
        _show(results, main)
    context.exit(int(any(finding.severity is findings.Severity.PROBLEM for finding in results)))


@slurm.command("nodes", epilog=_NODES)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json"]),
    default="table",
    show_default=True,
)
def nodes(*, output: str) -> None:
    """Show the cluster's cards, and their jobs.

    CARD is Slurm's number of the card on its node. With -o json: an object of kind SlurmNodes.
    """
    answer = cluster_cards.read()
    if output == "json":
        cards = [_described(card) for card in answer.cards]
        click.echo(
            json_objects.written("SlurmNodes", {"cards": cards, "problems": answer.problems})
        )
        return
    wide = output == "wide"
    header = ("NODE", *(["STATE"] if wide else []), "CARD", "TYPE", "USED", "JOBS")
    click.echo(tables.aligned([header, *(_row(card, wide=wide) for card in answer.cards)]))
    for problem in answer.problems:
        notices.note(tables.printable(problem))


def _devices() -> tuple[nvml.Device, ...]:
    from partage.local.ledger import session

    session.unfence(os.environ)
    with session.driver() as driver:
        return driver.devices()


def _devices_or_reason() -> tuple[tuple[nvml.Device, ...] | None, str]:
    try:
        return _devices(), ""
    except errors.DeviceError as error:
        return None, error.what


def _written(lines: gres_lines.Lines) -> Iterable[str]:
    yield "# gres.conf"
    yield from lines.gres_conf
    yield ""
    yield "# slurm.conf (Gres belongs to the line that the node has already)"
    yield from lines.slurm_conf


def _show(results: tuple[findings.Finding, ...], main: Path) -> None:
    if not results:
        click.echo(f"ok  {main}  nothing is wrong")
        return
    rows = [(str(finding.severity), _place(finding), _text(finding)) for finding in results]
    colour = False if os.environ.get("NO_COLOR") else None  # None: on a terminal only
    for finding, line in zip(results, tables.aligned(rows).splitlines(), strict=True):
        width = len(finding.severity)
        click.secho(line[:width], fg=_COLOURS[finding.severity], nl=False, color=colour)
        click.echo(line[width:])


def _place(finding: findings.Finding) -> str:
    line = f":{finding.line}" if finding.line else ""
    return tables.printable(f"{finding.file}{line}")


def _text(finding: findings.Finding) -> str:
    return tables.printable(f"{finding.problem}; {finding.remedy}")


def _row(card: cluster_cards.Card, *, wide: bool) -> list[str]:
    total = "?" if card.total is None else card.total
    cells = [
        card.node,
        *([card.state] if wide else []),
        str(card.index),
        card.type or "-",
        f"{card.used}/{total} {card.resource}",
        ", ".join(_job(job, wide=wide) for job in card.jobs) or "-",
    ]
    return [tables.printable(cell) for cell in cells]


def _job(job: cluster_cards.Job, *, wide: bool) -> str:
    name = f" {job.name!r}" if wide else ""  # its user chose it
    return f"{job.id} {job.user or '?'} {job.resource}:{job.amount}{name}"


def _described(card: cluster_cards.Card) -> dict[str, object]:
    return {
        "node": card.node,
        "state": card.state,
        "index": card.index,
        "type": card.type,
        "resource": card.resource,
        "used": card.used,
        "total": card.total,
        "jobs": card.jobs,
    }
