"""``partage fit``: would it fit here and now; or, where would the pods of a manifest go."""

from __future__ import annotations

import re

import click

from partage.cli import asking, decisions, fit_here, manifests, objects, tables
from partage.core import cards, demands, errors, fleet, quantities
from partage.dialects import pods
from partage.local import requests

_NODE = re.compile(r"(?P<name>[^=\s]+)=(?P<count>\d{1,3})x(?P<memory>[^:\s]+)(:(?P<model>.+))?")
_MOST_CARDS = 64
_LEAST_MIB, _MOST_MIB = 64, 1 << 24  # of a card; below and above it is a slip of the pen

_EXAMPLES = """
\b
Examples:
  partage fit --cards 3 --memory 10GiB
  partage fit --limits aliyun.com/gpu-mem=3 -o json
  partage fit -f pod.yaml --node dev-server-153=8x23Gi
  partage fit -f deploy.yaml --node a=8x80Gi:A100 --node b=4x16Gi:T4 -o json
"""


@click.command(epilog=_EXAMPLES)
@asking.options
@click.option(
    "-f",
    "--filename",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="Pods or workloads in YAML; - is stdin.",
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME=COUNTxMEMORY[:MODEL]",
    help="A node and its cards, for -f; may be given several times.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.pass_context
def fit(
    context: click.Context,
    *,
    wishes: requests.Wishes,
    filename: str | None,
    nodes: tuple[str, ...],
    output: str,
) -> None:
    """Say whether a share would fit on this machine now, what is in the way, and if it ever would.

    With -f and --node: where the pods of a file would go on empty nodes, in the order of the file,
    and why. Nothing is taken, either way.

    Exit code 0: all of it fits; 1: some does not; 2: something in the input cannot be used.
    """
    if filename is None and not nodes:
        asking.warn(wishes)
        fits = fit_here.answer(asking.within_sight(wishes), output)
    else:
        fits = _fit_pods(wishes, filename, nodes, output)
    if not fits:
        context.exit(1)


def _fit_pods(
    wishes: requests.Wishes, filename: str | None, nodes: tuple[str, ...], output: str
) -> bool:
    if filename is None or not nodes:
        missing = "-f FILE" if filename is None else "--node NAME=8x23Gi"
        raise errors.InputError(f"{missing} is missing", instead="a file goes on named nodes")
    if wishes != requests.Wishes(policy=wishes.policy):
        raise errors.InputError(
            "a share beside -f", instead="ask for the one or for the other; --policy goes with both"
        )
    world = fleet.standard(wishes.policy or "priced")
    for node in _nodes(nodes):
        world.set_node(node)
    made = [decisions.decide(world, *each) for each in _asking(filename)]
    click.echo(_json(made) if output == "json" else _table(made))
    for decision in made:
        for warning in decision.warnings:
            click.echo(f"warning: pod {decision.pod}: {warning}", err=True)
    return all(decision.grant is not None for decision in made)


def _asking(filename: str) -> list[tuple[pods.Pod, demands.PodDemand]]:
    """The pods that ask for cards; that others do not is told, unless nobody does."""
    found, others = [], []
    for pod in manifests.read(filename):
        demand = decisions.asked(pod)
        if demand is None:
            others.append(pod.metadata.name)
        else:
            found.append((pod, demand))
    if not found:
        raise errors.InputError(
            f"{filename}: pod {others[0]} asks for no card",
            instead="add a limit such as aliyun.com/gpu-mem: 3 (docs/dialects.md has all names)",
        )
    for name in others:
        click.echo(f"note: pod {name} asks for no card, and is left out", err=True)
    return found


def _nodes(texts: tuple[str, ...]) -> list[cards.Node]:
    nodes = [_node(text) for text in texts]
    names = [node.name for node in nodes]
    for name in names:
        if names.count(name) > 1:
            raise errors.InputError(
                f"--node: {name} is there twice", instead="give every node a name of its own"
            )
    return nodes


def _node(text: str) -> cards.Node:
    match = _NODE.fullmatch(text)
    if match is None:
        raise _refused(text, "is not readable", "write for example dev-server-153=8x23Gi")
    count = int(match["count"])
    if not 1 <= count <= _MOST_CARDS:
        raise _refused(text, f"a node has 1 to {_MOST_CARDS} cards", "write for example 8x23Gi")
    name, memory_mib = match["name"], _memory_mib(text, match["memory"])
    made = (
        cards.Card(
            uuid=f"GPU-{name}-{i}", index=i, memory_mib=memory_mib, model=match["model"] or ""
        )
        for i in range(count)
    )
    return cards.Node(name=name, cards=tuple(made))


def _memory_mib(text: str, memory: str) -> int:
    try:
        memory_mib = quantities.to_mib(memory)
    except errors.QuantityError as error:
        raise _refused(text, error.what, error.instead) from error
    if not _LEAST_MIB <= memory_mib <= _MOST_MIB:
        raise _refused(text, f"no card has {memory} bytes", "add the unit, for example 23Gi")
    return memory_mib


def _refused(text: str, what: str, instead: str) -> errors.InputError:
    return errors.InputError(f"--node {text!r}: {what}", instead=instead)


def _json(made: list[decisions.Decision]) -> str:
    return objects.written("Decisions", {"decisions": made})


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
    containers = (container.shares for container in decision.grant.containers)
    return ";".join(",".join(str(share.index) for share in shares) for shares in containers)
