"""Managed resources: the pods that ask for one of these come to Partage.

``ignoredByScheduler: false`` lets kube-scheduler count a resource by sum, too. That is needed for
all that a kubelet counts, or kube-scheduler binds past the sum and the kubelet fails the pod. It
holds for resources that no node advertises yet as well: pods that ask for them wait, and a kubelet
that does not know a resource would start them without a card. Ignored is what no kubelet ever sees,
and what the plugin of a family's own system does not report while it serves the family.

Where another vendor's plugin serves nodes without an agent, its pods are its own: nobody would
carry out what Partage decides there. Then all families that speak of its resource are left out. A
system that names its cards (as HAMi's does) reads what Partage writes, so its nodes are served.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from partage.core import cards
from partage.dialects import contract, node_readings, nodes, registry


class Managed(msgspec.Struct, frozen=True):
    """One resource; ``ignored`` by kube-scheduler's own count."""

    name: str
    ignored: bool


class Foreign(msgspec.Struct, frozen=True):
    """A resource that another plugin serves, and what is left out because of it."""

    resource: str
    nodes: tuple[str, ...]  # without an agent
    agents: tuple[str, ...]  # nodes whose agents advertise it, too
    families: tuple[str, ...]  # that speak of it
    left_out: tuple[str, ...]


class Choice(msgspec.Struct, frozen=True):
    """What is managed, and what people should know about it."""

    managed: tuple[Managed, ...]
    foreign: tuple[Foreign, ...] = ()
    unadvertised: tuple[str, ...] = ()  # that no node of the cluster has
    unreported: tuple[str, ...] = ()  # by plugins of others that serve their families


def without_cluster() -> Choice:
    """All resources, for a cluster whose nodes have agents."""
    return Choice(tuple(Managed(name, name not in advertised()) for name in names()))


def on_nodes(cluster_nodes: Iterable[nodes.Node]) -> Choice:
    """The resources to manage in a cluster with these nodes."""
    present = tuple(cluster_nodes)
    by_someone = {name for name in names() if any(node.amount(name) for node in present)}
    foreign = tuple(filter(None, (_foreign(name, present) for name in _vendors())))
    left_out = {name for owner in foreign for name in owner.left_out}
    managed = tuple(name for name in names() if name not in left_out)
    missing = [name for name in managed if name in advertised() - by_someone]
    by_others = _families_of_others(present)
    unreported = tuple(name for name in missing if name in by_others)
    counted = (by_someone | advertised()).difference(unreported)
    return Choice(
        tuple(Managed(name, name not in counted) for name in managed),
        foreign,
        tuple(name for name in missing if name not in by_others),
        unreported,
    )


def names() -> tuple[str, ...]:
    """Every resource of every dialect, in the order of the registry."""
    return tuple(dict.fromkeys(name for d in registry.DIALECTS for name in d.resources))


def advertised() -> frozenset[str]:
    """Those of them that agents advertise, by plugins or without; no kubelet sees the others."""
    card = cards.Card(uuid="GPU-0", index=0, memory_mib=16384)
    node, spoken = cards.Node(name="any", cards=(card,)), registry.dialect_names()
    offered = registry.offered(node, contract.Settings(), spoken)
    return frozenset({*offered, *registry.reported(node, spoken)})


def _vendors() -> tuple[str, ...]:
    return tuple(sorted(registry.names().vendor_resources))


def _foreign(resource: str, present: Iterable[nodes.Node]) -> Foreign | None:
    offering = [node for node in present if node.amount(resource)]
    others = tuple(node.metadata.name for node in offering if not _is_served(node))
    if not others:
        return None
    agents = tuple(node.metadata.name for node in offering if _has_agent(node))
    families = [d for d in registry.DIALECTS if resource in d.vendor_resources]
    left_out = tuple(dict.fromkeys(name for family in families for name in family.resources))
    return Foreign(resource, others, agents, tuple(d.name for d in families), left_out)


def _families_of_others(present: Iterable[nodes.Node]) -> frozenset[str]:
    """All resources of families of which a node without an agent advertises one."""
    others = [node for node in present if not _has_agent(node)]
    families = (
        frozenset(dialect.resources)
        for dialect in registry.DIALECTS
        if any(node.amount(name) for node in others for name in dialect.resources)
    )
    return frozenset().union(*families)


def _has_agent(node: nodes.Node) -> bool:
    return nodes.CARDS in node.metadata.annotations


def _is_served(node: nodes.Node) -> bool:
    """Whether somebody there carries out what Partage decides."""
    named = (card for card in node_readings.read(node).node.cards if not nodes.unnamed(card))
    return _has_agent(node) or any(named)
