"""``partage doctor``: what this machine has, and what is to be put right."""

from __future__ import annotations

import os

import click

from partage.cli import objects, tables
from partage.local import findings

_EXAMPLES = """\b
Examples:
  partage doctor
  partage --simulate 2x16GiB doctor
  partage doctor -o json | jq '.findings[] | select(.status != "ok")'

\b
Exit codes: 0 if there is no problem, 1 if there is one.
"""
_COLOURS = {
    findings.Status.OK: "green",
    findings.Status.NOTE: "yellow",
    findings.Status.PROBLEM: "red",
}


@click.command(epilog=_EXAMPLES)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.pass_context
def doctor(context: click.Context, /, *, output: str) -> None:
    """Examine this machine: the driver, its cards, fences, the ledger and permissions."""
    from partage.local import examining, sessions

    sessions.unfence(os.environ)
    found = examining.examine(os.environ)
    if output == "json":
        click.echo(objects.written("Examination", {"findings": found}))
    else:
        _show(found)
    context.exit(int(any(each.status is findings.Status.PROBLEM for each in found)))


def _show(found: list[findings.Finding]) -> None:
    rows = [(str(each.status), each.object, _text(each)) for each in found]
    colour = False if os.environ.get("NO_COLOR") else None  # None: on a terminal only
    for each, line in zip(found, tables.aligned(rows).splitlines(), strict=True):
        width = len(each.status)
        click.secho(line[:width], fg=_COLOURS[each.status], nl=False, color=colour)
        click.echo(line[width:])


def _text(finding: findings.Finding) -> str:
    text = f"{finding.text}; {finding.remedy}" if finding.remedy else finding.text
    return tables.printable(text)
