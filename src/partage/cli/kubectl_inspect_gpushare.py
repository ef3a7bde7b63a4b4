"""``kubectl inspect gpushare``: which pod has which card, in gpushare's words and its very text.

A drop-in for the plugin of that name, which people call by hand and in programs. It reads the
cluster directly and needs nothing of Partage to run. Errors are told as there, too: on standard
output, without a newline, with exit code 1.
"""

from __future__ import annotations

import click

from partage.cli import cluster_reading, entry, gpushare_rows, gpushare_table
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
@click.option("--kubeconfig", metavar="FILE", help="$KUBECONFIG, or ~/.kube/config.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.argument("node", default="")
def command(*, details: bool, kubeconfig: str | None, context: str | None, node: str) -> None:
    """Show the GPU memory that pods have in units of aliyun.com/gpu-mem.

    PENDING is memory of pods that are bound to a node while nothing says which card they have.
    Pods that ask in other words are not shown; "partage inspect" shows all.
    """
    rows = cluster_reading.read(_rows, kubeconfig=kubeconfig, context=context, node=node)
    click.echo(gpushare_table.details(rows) if details else gpushare_table.summary(rows))


def main() -> None:
    """Run the command as kubectl runs it."""
    entry.run(command, _NAME, tell=_tell)


def _tell(error: errors.PartageError) -> int:
    words = error.words if isinstance(error, cluster_reading.CannotRead) else str(error)
    click.echo(f"Failed due to {words}", nl=False)
    return 1


async def _rows(cluster: cluster_reading.Cluster) -> list[gpushare_table.NodeRow]:
    """One pass over the nodes, one over the pods."""
    # A node that was asked for by name is read even if it shares nothing.
    found = [n async for n in cluster.each_node() if cluster.node or gpushare_rows.shares(n)]
    tenants = gpushare_rows.Tenants()
    async for pod in cluster.each_pod(pods.Pod):
        tenants.put(pod)
    return [gpushare_rows.row(node, tenants) for node in found]
