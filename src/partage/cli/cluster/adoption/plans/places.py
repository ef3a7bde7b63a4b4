"""Places: nodes as they are before they are moved, and which of them cannot be moved now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from partage.cli.cluster.adoption import adoptions, objects, situation, systems
from partage.cli.cluster.facts import forms
from partage.dialects import nodes

# Labels of NVIDIA's feature discovery, by which its nodes tell of their cards.
_DISCOVERED = "nvidia.com/gpu"
_SHARING, _REPLICAS = "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas"


class Left(msgspec.Struct, frozen=True):
    """A node that stays as it is for now, and why."""

    node: str
    why: str


def places(seen: situation.Situation, changed: Iterable[str] = ()) -> list[adoptions.Place]:
    """The nodes that have the system's plugin; ``changed`` labels will be others."""
    served = seen.plugin_nodes()
    chosen = [node for node in seen.nodes if node.metadata.name in served]
    chosen.sort(key=lambda node: node.metadata.name)
    return [_place(node, seen, changed) for node in chosen]


def left(seen: situation.Situation, moved: Iterable[adoptions.Place]) -> list[Left]:
    """Those that cannot be moved as they are."""
    ready = {node.metadata.name for node in seen.nodes if node.ready}
    reasons = [
        (place.name, "its kubelet is not ready")
        if place.name not in ready
        else (place.name, untold(place, len(seen.tenants(place.name))))
        for place in moved
    ]
    return [Left(name, why) for name, why in reasons if why]


def unserved(seen: situation.Situation) -> list[str]:
    """Nodes whose plugin is not well: what they offered is not known."""
    ready = {node.metadata.name for node in seen.nodes if node.ready}
    return [
        f"node {name}: the plugin's pod {pod.label} is not ready, so what the node offers is not "
        "known; repair it, or take it off the node"
        for name, pod in sorted(seen.plugin_nodes().items())
        if name in ready and not pod.ready
    ]


def untold(place: adoptions.Place, tenants: int) -> str:
    """Why the kubelet's record would not tell which cards NVIDIA's plugin gave away."""
    present = labels(place)
    shared = present.get(_SHARING, "none") != "none" or present.get(_REPLICAS, "1") not in (
        "0",
        "1",
    )
    if not shared or not tenants:
        return ""
    return (
        f"NVIDIA's plugin shares its cards (time slicing or MPS), so nothing tells which card its "
        f"{tenants} pods have; drain it, then run this again"
    )


def as_node(place: adoptions.Place) -> nodes.Node:
    """The node as it told of its cards before."""
    return msgspec.convert(dict(place.before), nodes.Node)


def labels(place: adoptions.Place) -> Mapping[str, str]:
    """Of the labels by which nodes tell of their cards, those that it had."""
    return as_node(place).metadata.labels


def _place(node: forms.Node, seen: situation.Situation, changed: Iterable[str]) -> adoptions.Place:
    meta, resources = node.metadata, seen.system.resources
    tenants = seen.tenants(meta.name)
    return adoptions.Place(
        name=meta.name,
        labels={label: meta.labels.get(label) for label in changed},
        before=_telling(node, seen.system),
        amounts={name: node.allocatable(name) for name in resources},
        pods=tuple(sorted(pod.metadata.uid for pod in tenants)),
    )


def _telling(node: forms.Node, system: systems.System) -> objects.Object:
    """What tells of the node's cards before an agent does."""
    meta = node.metadata
    amounts = {name: str(node.amount(name)) for name in system.resources if node.amount(name)}
    return {
        "metadata": {
            "name": meta.name,
            "labels": _beginning(meta.labels, _DISCOVERED),
            "annotations": {
                name: meta.annotations[name]
                for name in system.node_annotations
                if name in meta.annotations
            },
        },
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _beginning(labels: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name.startswith(prefix)}
