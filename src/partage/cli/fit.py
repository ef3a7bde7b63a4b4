"""``partage fit``: where the pods of a manifest would go, without a cluster."""

from __future__ import annotations

import pathlib
import re

import click
import msgspec

from partage.cli import decisions, manifests, tables
from partage.core import cards, errors, quantities

_NODE = re.compile(r"(?P<name>[^=\s]+)=(?P<count>\d{1,3})x(?P<memory>[^:\s]+)(:(?P<model>.+))?")
_MOST_CARDS = 64

_EXAMPLES = """
\b
Examples:
  partage fit -f pod.yaml --node dev-server-153=8x23Gi
  partage fit -f deploy.yaml --node a=8x80Gi:A100 --node b=4x16Gi:T4 --policy spread -o json
"""


@click.command(epilog=_EXAMPLES)
@click.option("-f", "--filename", required=True, metavar="FILE", help="Pods or workloads in YAML.")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    required=True,
    metavar="NAME=COUNTxMEMORY[:MODEL]",
    help="A node and its cards; may be given several times.",
)
@click.option("--policy", default="priced", show_default=True, help="priced, binpack or spread.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.pass_context
def fit(
    context: click.Context, *, filename: str, nodes: tuple[str, ...], policy: str, output: str
) -> None:
    """Say where the pods of a file would go on empty nodes, in the order of the file, and why.

    Exit code 0: all of them fit; 1: some do not; 2: something in the input cannot be used.
    """
    world = decisions.new_fleet(policy)
    for text in nodes:
        world.set_node(_node(text))
    made = [decisions.decide(world, pod) for pod in manifests.read(pathlib.Path(filename))]
    click.echo(_json(made) if output == "json" else _table(made))
    for decision in made:
        for warning in decision.warnings:
            click.echo(f"warning: pod {decision.pod}: {warning}", err=True)
    if any(decision.grant is None for decision in made):
        context.exit(1)


def _node(text: str) -> cards.Node:
    match = _NODE.fullmatch(text)
    if match is None:
        raise errors.InputError(
            f"--node {text!r} is not readable", instead="write for example dev-server-153=8x23Gi"
        )
    count = int(match["count"])
    if not 1 <= count <= _MOST_CARDS:
        raise errors.InputError(
            f"--node {text!r}: a node has 1 to {_MOST_CARDS} cards",
            instead="write for example 8x23Gi",
        )
    name, memory_mib = match["name"], quantities.to_mib(match["memory"])
    made = (
        cards.Card(
            uuid=f"GPU-{name}-{i}", index=i, memory_mib=memory_mib, model=match["model"] or ""
        )
        for i in range(count)
    )
    return cards.Node(name=name, cards=tuple(made))


def _json(made: list[decisions.Decision]) -> str:
    return msgspec.json.format(msgspec.json.encode(made), indent=2).decode()


def _table(made: list[decisions.Decision]) -> str:
    header = ("POD", "DIALECT", "ASKS FOR", "NODE", "CARDS", "WHY")
    rows = [
        (d.pod, d.dialect, d.asks, d.grant.node if d.grant else "-", _cards(d), d.reason)
        for d in made
    ]
    return tables.aligned([header, *rows])


def _cards(decision: decisions.Decision) -> str:
    if decision.grant is None:
        return "-"
    shares = (share for container in decision.grant.containers for share in container.shares)
    return ",".join(str(share.index) for share in shares)
