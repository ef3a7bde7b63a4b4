"""Nodes as the doctor sees them: which have cards, by any sign, and who says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from partage.cli.cluster.facts import cluster_facts, forms
from partage.core import cards
from partage.dialects import contract, memory_units, node_readings, nodes, registry

_FENCE = "partage.dev/fence"
# Of NVIDIA's feature discovery, and of the nodes' own: PCI devices of NVIDIA, displays or not.
_DISCOVERED = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
)


_ANY = cards.Node(name="any", cards=(cards.Card(uuid="GPU-0", index=0, memory_mib=16384),))


class Readings:
    """Collects nodes; keeps those with cards, and what reading a pod's record needs."""

    def __init__(self, selectors: Iterable[Mapping[str, str]]) -> None:
        self._selectors = tuple(selectors)  # of DaemonSets of the agent
        self.begin()

    def begin(self) -> None:
        """Forget what came so far: a list that expires is read again."""
        self.cards: dict[str, cards.Node] = {}  # by name: to read records against
        self.published: set[str] = set()
        self._unit = memory_units.Unit(contract.Settings())
        self._nodes: list[cluster_facts.Node] = []
        self._count = 0

    @property
    def settings(self) -> contract.Settings:
        """How amounts of pods are read in this cluster."""
        return self._unit.settings

    def put(self, node: forms.Node) -> None:
        """Look at one node."""
        self._count += 1
        self._unit.vote(node.metadata.name, node)
        read = described(node, self._selectors)
        if not (read.selected or read.discovered or read.published or read.offered):
            return
        self._nodes.append(read)
        self.cards[read.name] = node_readings.read(node).node
        if read.published:
            self.published.add(read.name)

    def all(self) -> cluster_facts.Nodes:
        """The facts."""
        return cluster_facts.Nodes(tuple(self._nodes), self._count)


def offerable() -> frozenset[str]:
    """The resources that a node can offer; others are for schedulers alone."""
    names = registry.dialect_names()
    return frozenset(registry.offered(_ANY, contract.Settings(), names)) | _told()


def described(node: forms.Node, selectors: Iterable[Mapping[str, str]]) -> cluster_facts.Node:
    """What is worth knowing of one node."""
    labels = node.metadata.labels
    names = registry.names().resources
    offered = frozenset(filter(node.offers, names & node.status.allocatable.keys()))
    bare = cluster_facts.Node(
        name=node.metadata.name,
        ready=node.ready,
        selected=any(selector.items() <= labels.items() for selector in selectors),
        discovered=any(labels.get(label) == "true" for label in _DISCOVERED),
        fence=labels.get(_FENCE, ""),
        offered=offered,
        served=not offered <= _told(),
    )
    replace = msgspec.structs.replace
    try:
        publication = nodes.publication(node)
    except nodes.Unreadable as unreadable:
        return replace(bare, published=True, problem=str(unreadable))
    if publication is None:
        return bare
    indexes = frozenset(card.index for card in publication.cards)
    return replace(bare, published=True, agent_version=publication.agent, indexes=indexes)


def _told() -> frozenset[str]:
    """What an agent writes into a node's status itself; it stays when the agent is gone."""
    return frozenset(registry.reported(_ANY, registry.dialect_names()))
