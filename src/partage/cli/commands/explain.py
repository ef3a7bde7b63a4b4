"""``partage explain``: why a pod waits, from the cluster itself; no extender needed.

It decides as the extender does, on what the API server says at this moment. It cannot know what the
extender reserved in the last seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from partage.cli.cluster import claims_snapshot, cluster_snapshot, mirror_snapshot
from partage.cli.display import json_objects, tables
from partage.core import errors

if TYPE_CHECKING:
    from partage.scheduler.verbs import explanations

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

_EPILOG = """\b
Examples:
  partage explain my-pod                 why is it pending?
  partage explain -n lab train-0 -o json

Exit code 0: the pod is bound, or fits; 1: it does not fit now, or never.
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
                f"{name!r} is not a valid name of a pod or namespace",
                instead="'kubectl get pods -A' lists them",
            )

    async def work(cluster: cluster_snapshot.Cluster) -> explanations.Explanation:
        return await _explained(cluster, namespace, pod)

    explanation = cluster_snapshot.read(work, kubeconfig=kubeconfig, context=context, node="")
    if output == "json":
        click.echo(json_objects.written("Explanation", explanation))
    else:
        click.echo("\n".join(_lines(explanation)))
    return 0 if explanation.fits or explanation.grant is not None else 1


async def _explained(
    cluster: cluster_snapshot.Cluster, namespace: str, name: str
) -> explanations.Explanation:
    from partage.scheduler.verbs import explanations

    matching: list[explanations.Pod] = []

    def see(pod: explanations.Pod) -> None:
        if (pod.metadata.namespace, pod.metadata.name) == (namespace, name):
            matching.append(pod)

    mirror = await mirror_snapshot.read(cluster, explanations.Pod, see=see)
    if not matching:
        raise errors.InputError(
            f"there is no pod {namespace}/{name}", instead="'kubectl get pods -A' lists them"
        )
    claims = await claims_snapshot.read(cluster, mirror)
    return await explanations.explain(mirror, matching[0], claims=claims)


def _lines(explanation: explanations.Explanation) -> Iterator[str]:
    yield f"{explanation.pod}: {explanation.summary}"
    if explanation.would_fit:
        yield f"would fit now: {explanation.would_fit}"
    yield from (f"warning: {warning}" for warning in explanation.warnings)
    if explanation.nodes:
        yield ""
        rows = [("NODE", "WHEN", "WHY")]
        rows += [
            (reason.node, "never" if reason.never else "not now", reason.text)
            for reason in explanation.nodes
        ]
        yield tables.aligned(rows)
    if explanation.refused > len(explanation.nodes):
        yield f"and {explanation.refused - len(explanation.nodes)} more nodes"
