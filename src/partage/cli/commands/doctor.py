"""``partage doctor``: what this machine has, and what has to be repaired."""

from __future__ import annotations

import os

import click

from partage.cli.display import json_objects, tables
from partage.local.doctor import findings

_EXAMPLES = """\b
Examples:
  partage doctor
  partage --simulate 2x16GiB doctor
  partage doctor --cluster           the guard of a cluster
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
@click.option("--cluster", is_flag=True, help="Examine a cluster: its guard, and who is excepted.")
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
    """Examine this machine: the driver, its cards, fences, the ledger and permissions."""
    if not cluster and (kubeconfig or kube_context):
        raise click.UsageError("--kubeconfig and --context are for --cluster")
    results = _of_cluster(kubeconfig, kube_context) if cluster else _of_machine()
    if output == "json":
        click.echo(json_objects.written("Examination", {"findings": results}))
    else:
        _show(results)
    context.exit(int(any(finding.status is findings.Status.PROBLEM for finding in results)))


def _of_machine() -> list[findings.Finding]:
    from partage.local.doctor import examination
    from partage.local.ledger import session

    session.unfence(os.environ)
    return examination.examine(os.environ)


def _of_cluster(kubeconfig: str | None, context: str | None) -> list[findings.Finding]:
    from partage.cli.cluster import cluster_checks, cluster_snapshot

    async def work(cluster: cluster_snapshot.Cluster) -> list[findings.Finding]:
        return await cluster_checks.examined(cluster.api)

    return cluster_snapshot.read(work, kubeconfig=kubeconfig, context=context, node="")


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
