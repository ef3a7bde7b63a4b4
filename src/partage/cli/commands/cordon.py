"""``partage cordon``: nothing new lands on one card of a node; who is there may be asked to leave.

A node is cordoned by ``kubectl cordon``; this is the same for a single card, for one that is to be
replaced or looked at while the others work on.
"""

from __future__ import annotations

import click
import msgspec

from partage.cli import notices
from partage.cli.cluster import card_cordons, cluster_snapshot, evictions
from partage.cli.display import json_objects, tables
from partage.core import errors
from partage.dialects import cordons

_EPILOG = """\b
Examples:
  partage cordon gpu-1 2 --reason "fan is loud"
  partage cordon gpu-1 GPU-8f2a... --drain --timeout 300
  partage inspect gpu-1              HEALTH of the card is "cordoned"
  partage uncordon gpu-1 2

Exit code 0: the card is cordoned, and with --drain empty; 1: pods are left, or
the cluster cannot be read or changed; 2: there is no such card.
"""


class Cordon(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, for programs."""

    node: str
    index: int | None
    uuid: str | None  # null where nobody named the card
    changed: bool  # false: it was so before
    evicted: tuple[str, ...] = ()
    left: tuple[evictions.Left, ...] = ()


@click.command(epilog=_EPILOG)
@click.argument("node")
@click.argument("card")
@click.option("--reason", metavar="TEXT", help="Why, for people; it is shown beside the card.")
@click.option("--drain", is_flag=True, help="Evict the pods that have a share of the card.")
@click.option("--force", is_flag=True, help="With --drain: also pods that nobody makes again.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=0,
    metavar="SECONDS",
    help="With --drain: how long to wait; 0, the default: as long as it takes.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.option("--kubeconfig", metavar="FILE", help="$KUBECONFIG, or ~/.kube/config.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
def cordon(
    *,
    node: str,
    card: str,
    reason: str | None,
    drain: bool,
    force: bool,
    timeout: float,
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Keep new pods off one card; CARD is its index or its uuid. Pods that run there stay."""
    if not drain and (force or timeout):
        raise click.UsageError("--force and --timeout are for --drain.")
    if reason is not None and len(reason) > cordons.LONGEST_REASON:
        raise errors.InputError(
            f"--reason has {len(reason)} characters",
            instead=f"write at most {cordons.LONGEST_REASON}",
        )
    tell = click.echo if output == "text" else notices.show

    async def work(cluster: cluster_snapshot.Cluster) -> Cordon:
        changed = await card_cordons.add(cluster, card, reason)
        tell(_sentence(node, changed))
        drained = evictions.Drained()
        if drain:
            drained = await evictions.drain(
                cluster, changed.index, force=force, timeout_s=timeout or None, tell=tell
            )
        return _result(node, changed, drained)

    result = cluster_snapshot.read(work, kubeconfig=kubeconfig, context=context, node=node)
    if output == "json":
        click.echo(json_objects.written("CardCordon", result))
    else:
        for left in result.left:
            click.echo(f"pod {left.namespace}/{left.pod}: left: {tables.printable(left.why)}")
        if drain and not result.left:
            click.echo(f"no pod has a share of card {result.index} of node {node}")
    return 1 if result.left else 0


def _sentence(node: str, changed: card_cordons.Changed) -> str:
    word = "is cordoned" if changed.written else "was cordoned already"
    return f"card {changed.name} of node {node} {word}"


def _result(node: str, changed: card_cordons.Changed, drained: evictions.Drained) -> Cordon:
    return Cordon(
        node=node,
        index=changed.index,
        uuid=changed.uuid,
        changed=changed.written,
        evicted=drained.evicted,
        left=drained.left,
    )
