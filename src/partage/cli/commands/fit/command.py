"""``partage fit``: would a share fit on this machine; or, where would the pods of a file go."""

from __future__ import annotations

import os
import re

import click

from partage.cli import notices, share_options
from partage.cli.commands.fit import machine_answer, manifests, pod_placement
from partage.cli.display import json_objects, tables
from partage.cli.sources import slurm_node
from partage.core import cards, demands, errors, fleet, quantities
from partage.dialects import pods
from partage.local.requests import requests

_NODE = re.compile(r"(?P<name>[^=\s]+)=(?P<count>\d{1,3})x(?P<memory>[^:\s]+)(:(?P<model>.+))?")
_MOST_CARDS = 64
_SMALLEST_MIB, _LARGEST_MIB = 64, 1 << 24  # of a card; anything else is a slip of the pen

_EXAMPLES = """
\b
Examples:
  partage fit --cards 3 --memory 10GiB
  partage fit --limits aliyun.com/gpu-mem=3 -o json
  partage fit -f pod.yaml --node dev-server-153=8x23Gi
  partage fit -f deploy.yaml --node a=8x80Gi:A100 --node b=4x16Gi:T4 -o json
"""


@click.command(epilog=_EXAMPLES)
@share_options.options
@share_options.under_slurm
@click.option(
    "-f",
    "--filename",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="A file of pods or workloads in YAML; - is stdin.",
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME=COUNTxMEMORY[:MODEL]",
    help="A node and its cards, for -f; can be repeated.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.pass_context
def fit(
    context: click.Context,
    *,
    wishes: requests.Wishes,
    under_slurm: bool,
    filename: str | None,
    nodes: tuple[str, ...],
    output: str,
) -> None:
    """Say whether a share would fit on this machine now or ever, and what is in the way.

    With -f and --node: where the pods of a file would go on empty nodes, in the order of the file,
    and why. Nothing is granted, either way.

    Exit code 0: everything fits; 1: something does not fit; 2: the input cannot be used.
    """
    if filename is None and not nodes:
        share_options.warn(wishes)
        left = share_options.restricted_to_visible(wishes, under_slurm=under_slurm)
        gate = slurm_node.gate(os.environ, under_slurm=under_slurm)
        fits = machine_answer.answer(left, output, gate)
    elif under_slurm:
        raise errors.InputError("--under-slurm is about this machine", instead="leave out -f")
    else:
        fits = _fit_pods(wishes, filename, nodes, output)
    if not fits:
        context.exit(1)


def _fit_pods(
    wishes: requests.Wishes, filename: str | None, nodes: tuple[str, ...], output: str
) -> bool:
    if filename is None or not nodes:
        missing = "-f FILE" if filename is None else "--node NAME=8x23Gi"
        raise errors.InputError(f"{missing} is missing", instead="write -f and --node together")
    if wishes != requests.Wishes(policy=wishes.policy):
        raise errors.InputError(
            "-f and options for a share are both given",
            instead="write one of them; --policy goes with both",
        )
    trial_fleet = fleet.standard(wishes.policy or "priced")
    for node in _nodes(nodes):
        trial_fleet.set_node(node)
    decisions = [
        pod_placement.decide(trial_fleet, pod, demand) for pod, demand in _asking(filename)
    ]
    click.echo(_json(decisions) if output == "json" else _table(decisions))
    for decision in decisions:
        for warning in decision.warnings:
            notices.show(f"warning: pod {decision.pod}: {warning}")
    return all(decision.grant is not None for decision in decisions)


def _asking(filename: str) -> list[tuple[pods.Pod, demands.PodDemand]]:
    """The pods that ask for cards; a notice names the others, unless there are only others."""
    asking, others = [], []
    for pod in manifests.read(filename):
        demand = pod_placement.demand_of(pod)
        if demand is None:
            others.append(pod.metadata.name)
        else:
            asking.append((pod, demand))
    if not asking:
        raise errors.InputError(
            f"{filename}: pod {others[0]} asks for no card",
            instead="add a limit such as aliyun.com/gpu-mem: 3 (docs/dialects.md has all names)",
        )
    for name in others:
        notices.show(f"note: pod {name} asks for no card and is left out")
    return asking


def _nodes(texts: tuple[str, ...]) -> list[cards.Node]:
    nodes = [_node(text) for text in texts]
    names = [node.name for node in nodes]
    for name in names:
        if names.count(name) > 1:
            raise errors.InputError(
                f"--node: {name} is given twice", instead="give every node a name of its own"
            )
    return nodes


def _node(text: str) -> cards.Node:
    match = _NODE.fullmatch(text)
    if match is None:
        raise _refused(text, "is not a node", "write for example dev-server-153=8x23Gi")
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
    if not _SMALLEST_MIB <= memory_mib <= _LARGEST_MIB:
        raise _refused(text, f"no card has {memory} bytes", "add the unit, for example 23Gi")
    return memory_mib


def _refused(text: str, what: str, instead: str) -> errors.InputError:
    return errors.InputError(f"--node {text!r}: {what}", instead=instead)


def _json(decisions: list[pod_placement.Decision]) -> str:
    return json_objects.written("Decisions", {"decisions": decisions})


def _table(decisions: list[pod_placement.Decision]) -> str:
    header = ("POD", "DIALECT", "ASKS FOR", "NODE", "CARDS", "WHY")
    rows = [
        (d.pod, d.dialect, d.asks, d.grant.node if d.grant else "-", _cards(d), d.reason)
        for d in decisions
    ]
    return tables.aligned([header, *rows])


def _cards(decision: pod_placement.Decision) -> str:
    if decision.grant is None:
        return "-"
    containers = (container.shares for container in decision.grant.containers)
    return ";".join(",".join(str(share.index) for share in shares) for shares in containers)
