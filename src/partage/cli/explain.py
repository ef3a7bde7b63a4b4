"""``partage explain``: why a pod waits, from the cluster itself; no extender needed.

It decides as the extender does, on what the API server says of this moment. What it cannot know are
the promises that the extender made in the last seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from partage.cli import cluster_reading, mirroring, tables
from partage.core import errors

if TYPE_CHECKING:
    from partage.scheduler import explaining

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

_EPILOG = """\b
Examples:
  partage explain my-pod                 why is it pending?
  partage explain -n lab train-0 -o json

Exit code 0: it is bound, or fits; 1: it does not fit now, or never.
"""


@click.command(epilog=_EPILOG)
@click.argument("pod")
@click.option("-n", "--namespace", default="default", show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.option("--kubeconfig", metavar="FILE", help="$KUBECONFIG, or ~/.kube/config.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
def explain(
    *, pod: str, namespace: str, output: str, kubeconfig: str | None, context: str | None
) -> int:
    """Say why a pod is pending, for each node and card, and what would fit."""
    for name in (namespace, pod):
        if not _NAME.fullmatch(name):
            raise errors.InputError(
                f"{name!r} cannot be the name of a pod or namespace",
                instead="'kubectl get pods -A' lists them",
            )

    async def work(cluster: cluster_reading.Cluster) -> explaining.Explanation:
        return await _explained(cluster, namespace, pod)

    told = cluster_reading.read(work, kubeconfig=kubeconfig, context=context, node="")
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        click.echo("\n".join(_lines(told)))
    return 0 if told.fits or told.grant is not None else 1


async def _explained(
    cluster: cluster_reading.Cluster, namespace: str, name: str
) -> explaining.Explanation:
    from partage.scheduler import explaining

    found: list[explaining.Pod] = []

    def see(pod: explaining.Pod) -> None:
        if (pod.metadata.namespace, pod.metadata.name) == (namespace, name):
            found.append(pod)

    known = await mirroring.read(cluster, explaining.Pod, see=see)
    if not found:
        raise errors.InputError(
            f"there is no pod {namespace}/{name}", instead="'kubectl get pods -A' lists them"
        )
    return await explaining.explain(known, found[0])


def _lines(told: explaining.Explanation) -> Iterator[str]:
    yield f"{told.pod}: {told.summary}"
    if told.would_fit:
        yield f"would fit now: {told.would_fit}"
    yield from (f"warning: {warning}" for warning in told.warnings)
    if told.nodes:
        yield ""
        rows = [("NODE", "WHEN", "WHY")]
        rows += [(n.node, "never" if n.never else "not now", n.text) for n in told.nodes]
        yield tables.aligned(rows)
    if told.refused > len(told.nodes):
        yield f"and {told.refused - len(told.nodes)} more nodes"
