"""``kubectl inspect gpushare``: which pod has which card, in exactly the text of gpushare.

A drop-in for the plugin of that name, which people call by hand and in programs. It reads the
cluster directly, and nothing of Partage has to run. Errors are printed as there, too: on standard
output, without a newline, with exit code 1.
"""

from __future__ import annotations

import click

from partage.cli import entry
from partage.cli.cluster import cluster_snapshot, gpushare_rows
from partage.cli.display import gpushare_table
from partage.core import errors
from partage.dialects import pods

_NAME = "kubectl inspect gpushare"

_EPILOG = """\b
Examples:
  kubectl inspect gpushare                      one line for each node
  kubectl inspect gpushare -d dev-server-153    the pods of one node
"""


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-d", "details", is_flag=True, help="Show every pod.")
@click.option(
    "--kubeconfig", metavar="FILE", help="The kubeconfig; $KUBECONFIG, or ~/.kube/config."
)
@click.option("--context", metavar="NAME", help="A context of the kubeconfig.")
@click.argument("node", default="")
def command(*, details: bool, kubeconfig: str | None, context: str | None, node: str) -> None:
    """Show the GPU memory that pods have in units of aliyun.com/gpu-mem.

    PENDING is memory of pods that are bound to a node without a known card. Pods that ask with
    other resources are not shown; "partage inspect" shows all.
    """
    rows = cluster_snapshot.read(_rows, kubeconfig=kubeconfig, context=context, node=node)
    click.echo(gpushare_table.details(rows) if details else gpushare_table.summary(rows))


def main() -> None:
    """Run the command as kubectl runs it."""
    entry.run(command, _NAME, tell=_tell)


def _tell(error: errors.PartageError) -> int:
    words = error.words if isinstance(error, cluster_snapshot.CannotRead) else str(error)
    click.echo(f"Failed due to {words}", nl=False)
    return 1


async def _rows(cluster: cluster_snapshot.Cluster) -> list[gpushare_table.NodeRow]:
    """One pass over the nodes, one over the pods."""
    # A node that was named is read even if it shares nothing.
    shown = [n async for n in cluster.each_node() if cluster.node or gpushare_rows.shares(n)]
    tenants = gpushare_rows.Tenants()
    async for pod in cluster.each_pod(pods.Pod):
        tenants.put(pod)
    return [gpushare_rows.row(node, tenants) for node in shown]
