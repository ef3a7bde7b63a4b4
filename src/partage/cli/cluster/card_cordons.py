"""Cordons of single cards, changed in a cluster: read the node, change one annotation, write it.

Several people may do so at once. A write names the version of the node that was read, and where
the node has changed meanwhile it is read again: nobody's cordon is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from partage.cli.cluster import cluster_snapshot
from partage.core import cards, errors
from partage.dialects import cordons, node_readings, nodes
from partage.kube import errors as kube_errors

_TRIES = 10
_Words = Mapping[str, str]  # the annotation: the reason, by uuid or index


class Metadata(nodes.Metadata, frozen=True, rename="camel"):
    """What was written on the node, and in which version that was read."""

    resource_version: str = ""


class Node(nodes.Node, frozen=True, rename="camel"):
    """A node that is going to be changed."""

    metadata: Metadata = Metadata()


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """Which card it was, and whether anything had to be written.

    Of a card that is gone from its node only the name is left by which it was cordoned.
    """

    name: str  # for people
    index: int | None
    uuid: str | None  # None where nobody named the card, too
    written: bool


async def add(cluster: cluster_snapshot.Cluster, word: str, reason: str | None) -> Changed:
    """Cordon a card; a reason that is not given leaves the one that is there."""

    def change(node: Node, words: _Words) -> tuple[_Words, Changed]:
        card = _named(node, word)
        return _outcome(card, words, cordons.added(words, card, reason))

    return await _change(cluster, change)


async def lift(cluster: cluster_snapshot.Cluster, word: str) -> Changed:
    """Take the cordon of a card away, also of one that the node does not have any more."""

    def change(node: Node, words: _Words) -> tuple[_Words, Changed]:
        if word in words and cordons.find(word, _cards(node)) is None:
            stray = Changed(name=repr(word), index=None, uuid=None, written=True)
            return cordons.lifted(words, (word,)), stray
        card = _named(node, word)
        return _outcome(card, words, cordons.lifted(words, cordons.names(card)))

    return await _change(cluster, change)


def _outcome(card: cards.Card, before: _Words, after: _Words) -> tuple[_Words, Changed]:
    uuid = None if nodes.unnamed(card) else card.uuid
    return after, Changed(name=_shown(card), index=card.index, uuid=uuid, written=after != before)


async def _change(
    cluster: cluster_snapshot.Cluster, change: Callable[[Node, _Words], tuple[_Words, Changed]]
) -> Changed:
    for attempt in range(1, _TRIES + 1):
        node = await cluster.one_node(Node)
        after, changed = change(node, _written(node))
        try:
            if changed.written:
                await _write(cluster, node, after)
        except kube_errors.Conflict:
            if attempt == _TRIES:
                raise
        else:
            break
    return changed


async def _write(cluster: cluster_snapshot.Cluster, node: Node, words: _Words) -> None:
    metadata = {
        "resourceVersion": node.metadata.resource_version,
        "annotations": {cordons.CORDONED: cordons.encode(words)},
    }
    await cluster.api.patch(f"/api/v1/nodes/{node.metadata.name}", {"metadata": metadata})


def _written(node: Node) -> _Words:
    try:
        return cordons.written(node.metadata.annotations)
    except nodes.Unreadable as unreadable:
        name = node.metadata.name
        raise cluster_snapshot.CannotRead(
            f"node {name}: {unreadable}",
            words=str(unreadable),
            instead="all its cards count as cordoned; remove the annotation with "
            f"'kubectl annotate node {name} {cordons.CORDONED}-'",
        ) from unreadable


def _cards(node: Node) -> Sequence[cards.Card]:
    return node_readings.read(node).node.cards


def _named(node: Node, word: str) -> cards.Card:
    """The card with this index or uuid."""
    card = cordons.find(word, _cards(node))
    if card is None:
        what = f"node {node.metadata.name} has no card {word!r}"
        raise errors.InputError(what, instead=_choices(_cards(node)))
    return card


def _choices(node_cards: Sequence[cards.Card]) -> str:
    if not node_cards:
        return "Partage knows of no card there; 'partage inspect' lists nodes with cards"
    listed = ", ".join(map(_shown, node_cards))
    return f"write the index or the uuid of one of its cards: {listed}"


def _shown(card: cards.Card) -> str:
    return str(card.index) if nodes.unnamed(card) else f"{card.index} ({card.uuid})"
