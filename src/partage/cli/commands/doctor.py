"""``partage doctor``: what this machine or this cluster has, and what has to be repaired."""

from __future__ import annotations

import datetime as dt
import os
import sys

import click

import partage
from partage.cli import notices
from partage.cli.display import json_objects, tables
from partage.core import errors
from partage.local.doctor import findings

_EXAMPLES = """\b
Examples:
  partage doctor
  partage --simulate 2x16GiB doctor
  partage doctor --cluster           all that Partage runs on in a cluster
  partage doctor -o json | jq '.findings[] | select(.status != "ok")'

\b
Exit codes: 0 if there is no problem, 1 if there is one; of a cluster 2 if it
cannot be looked at. Notes, and what was not checked, are not problems.
"""
_COLOURS = {
    findings.Status.OK: "green",
    findings.Status.NOTE: "yellow",
    findings.Status.PROBLEM: "red",
    findings.Status.UNCHECKED: "yellow",
}


class CannotLook(errors.PartageError):
    """The cluster does not let the doctor in."""

    code = "cannot-look"
    exit_code = 2


@click.command(epilog=_EXAMPLES)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.option("--cluster", is_flag=True, help="Examine a cluster instead.")
@click.option("--kubeconfig", metavar="FILE", help="$KUBECONFIG, or ~/.kube/config.")
@click.option("--context", "kube_context", metavar="NAME", help="Context of the kubeconfig.")
@click.pass_context
def doctor(
    context: click.Context,
    /,
    *,
    output: str,
    cluster: bool,
    kubeconfig: str | None,
    kube_context: str | None,
) -> None:
    """Examine this machine: the driver, its cards, fences, the ledger and permissions.

    With --cluster: what runs there, versions, nodes, kube-scheduler, the guard, certificates.
    """
    if not cluster and (kubeconfig or kube_context):
        raise click.UsageError("--kubeconfig and --context are for --cluster")
    results, code = _of_cluster(kubeconfig, kube_context) if cluster else _of_machine()
    if output == "json":
        click.echo(json_objects.written("Examination", {"findings": results}))
    else:
        _show(results)
    context.exit(code)


def _of_machine() -> tuple[list[findings.Finding], int]:
    from partage.cli.sources import this_machine
    from partage.local.doctor import examination
    from partage.local.ledger import session

    session.unfence(os.environ)
    results = examination.examine(os.environ, beside=this_machine.beside(os.environ))
    return results, int(any(finding.status is findings.Status.PROBLEM for finding in results))


def _of_cluster(kubeconfig: str | None, context: str | None) -> tuple[list[findings.Finding], int]:
    from partage.cli.cluster import cluster_snapshot
    from partage.cli.cluster.checks import examination
    from partage.cli.cluster.facts import cluster_facts, collection

    progress = notices.Progress(sys.stderr)

    async def work(cluster: cluster_snapshot.Cluster) -> cluster_facts.Facts:
        now = dt.datetime.now(dt.UTC)
        return await collection.collect(
            cluster.api, version=partage.__version__, now=now, tell=progress.show
        )

    try:
        facts = cluster_snapshot.read(work, kubeconfig=kubeconfig, context=context, node="")
    except cluster_snapshot.CannotRead as error:
        raise CannotLook(error.what, instead=error.instead) from error
    finally:
        progress.clear()
    results = examination.examine(facts)
    return results, examination.exit_code(facts, results)


def _show(results: list[findings.Finding]) -> None:
    rows = [(str(finding.status), finding.object, _text(finding)) for finding in results]
    colour = False if os.environ.get("NO_COLOR") else None  # None: on a terminal only
    for finding, line in zip(results, tables.aligned(rows).splitlines(), strict=True):
        width = len(finding.status)
        click.secho(line[:width], fg=_COLOURS[finding.status], nl=False, color=colour)
        click.echo(line[width:])


def _text(finding: findings.Finding) -> str:
    text = f"{finding.text}; {finding.remedy}" if finding.remedy else finding.text
    return tables.printable(text)
