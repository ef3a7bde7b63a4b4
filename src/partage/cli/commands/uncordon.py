"""``partage uncordon``: what ``partage cordon`` closed is open again."""

from __future__ import annotations

import click
import msgspec

from partage.cli.cluster import card_cordons, cluster_snapshot
from partage.cli.display import json_objects

_EPILOG = """\b
Examples:
  partage uncordon gpu-1 2
  partage uncordon gpu-1 GPU-8f2a...

Exit code 0: the card is open; 1: the cluster cannot be read or changed; 2: there
is no such card.
"""


class Uncordon(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, for programs."""

    node: str
    index: int | None  # null where the card is gone
    uuid: str | None  # null where nobody named the card
    changed: bool  # false: it was open before


@click.command(epilog=_EPILOG)
@click.argument("node")
@click.argument("card")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.option("--kubeconfig", metavar="FILE", help="$KUBECONFIG, or ~/.kube/config.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
def uncordon(
    *, node: str, card: str, output: str, kubeconfig: str | None, context: str | None
) -> None:
    """Let new pods onto a card again; CARD is its index or its uuid."""

    async def work(cluster: cluster_snapshot.Cluster) -> card_cordons.Changed:
        return await card_cordons.lift(cluster, card)

    changed = cluster_snapshot.read(work, kubeconfig=kubeconfig, context=context, node=node)
    if output == "json":
        click.echo(json_objects.written("CardUncordon", _result(node, changed)))
        return
    word = "is open to new pods again" if changed.written else "was not cordoned"
    click.echo(f"card {changed.name} of node {node} {word}")


def _result(node: str, changed: card_cordons.Changed) -> Uncordon:
    return Uncordon(node=node, index=changed.index, uuid=changed.uuid, changed=changed.written)
