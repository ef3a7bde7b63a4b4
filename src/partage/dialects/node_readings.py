"""Nodes as the core knows them: their cards, what their labels set, and what is wrong with both.

Our agent publishes the cards of its node; of other nodes every family is asked what it knows, by
resources that are advertised and by labels.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from partage.core import cards
from partage.dialects import (
    compute_policies,
    contract,
    cordons,
    modes,
    nodes,
    registry,
    rules,
)

_AWAY = "the node's agent was ended, and no other has come yet"


class Reading(msgspec.Struct, frozen=True):
    """A node with its cards, and what is wrong with what is written on it."""

    node: cards.Node
    problems: tuple[str, ...] = ()


def read(node: nodes.Node, unhealthy: Collection[int] = ()) -> Reading:
    """The node as the core knows it; ``unhealthy`` are the indexes of cards that others ruled out.

    What cannot be read is a problem to report, and its cards are not there: nothing new is placed
    on them, and what was granted on them stays counted.
    """
    problems: list[str] = []
    try:
        node_cards = nodes.published(node)
        if node_cards is None:
            node_cards = _advertised(node)
    except nodes.Unreadable as unreadable:
        node_cards = ()
        problems.append(str(unreadable))
    labels = node.metadata.labels
    cordoned = cordons.read(node.metadata.annotations, node_cards)
    away = dict.fromkeys((card.uuid for card in node_cards), _AWAY)
    problems += [*_overstated(node_cards), *_slips(labels), *cordoned.problems]
    other_vendor = next(filter(None, (d.other_vendor(labels) for d in registry.DIALECTS)), "")
    if other_vendor and node_cards:
        problems.append(
            f"label {other_vendor} says that it has another vendor's cards, so nothing is placed "
            f"on the {len(node_cards)} that it names; remove the label if they are NVIDIA's"
        )
    node_cards = () if other_vendor else tuple(map(nodes.within_memory, node_cards))
    bare = cards.Node(
        name=node.metadata.name,
        traits=traits(labels),
        cards_by=cards_by(labels),
        address=node.address,
        cordons=away if nodes.AWAY in node.metadata.annotations else cordoned.reasons,
    )
    try:
        node_cards = nodes.judged(node_cards, unhealthy)
        return Reading(msgspec.structs.replace(bare, cards=node_cards), tuple(problems))
    except ValueError as error:  # two cards with one uuid or index
        return Reading(bare, (*problems, str(error)))


def traits(labels: Mapping[str, str]) -> frozenset[str]:
    """What the labels of a node mean to the dialects."""
    return frozenset(mode.trait for mode in modes_of(labels) if mode.trait)


def cards_by(labels: Mapping[str, str]) -> str:
    """The policy that the labels of a node name for the choice among its cards, if any."""
    return next((mode.cards_by for mode in modes_of(labels) if mode.cards_by), "")


def modes_of(labels: Mapping[str, str]) -> Iterator[modes.Mode]:
    """The modes that the labels of a node set, of all families."""
    by_label = _modes_by_label(registry.DIALECTS)
    return (mode for label in labels.items() for mode in by_label.get(label, ()))


def mode_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Those of a node's labels that set modes, whether to a value that means something or not."""
    names = {name for name, _ in _modes_by_label(registry.DIALECTS)}
    return {name: value for name, value in labels.items() if name in names}


@functools.cache
def _modes_by_label(
    dialects: tuple[contract.Dialect, ...],
) -> Mapping[tuple[str, str], list[modes.Mode]]:
    """The modes by label and value; nodes report every few seconds, and have dozens of labels."""
    by_label: dict[tuple[str, str], list[modes.Mode]] = {}
    for mode in (mode for dialect in dialects for mode in dialect.modes):
        for label in itertools.product(mode.labels, mode.values):
            by_label.setdefault(label, []).append(mode)
    return by_label


def _overstated(node_cards: Iterable[cards.Card]) -> Iterator[str]:
    """What processes outside Partage are said to use, where no card has so much."""
    for card in node_cards:
        if nodes.within_memory(card) != card:
            yield (
                f"card {card.index}: processes outside Partage are said to use "
                f"{card.foreign_memory_mib} MiB and {card.foreign_compute_percent} %, which is "
                "more than it has; all of it counts as used"
            )


def _slips(labels: Mapping[str, str]) -> list[str]:
    """What is wrong with labels that set a mode."""
    return [
        *_unknown_values(labels),
        *_contradictions(labels),
        *compute_policies.of_node(labels).problems,
    ]


def _unknown_values(labels: Mapping[str, str]) -> Iterator[str]:
    """Values that set no mode: the node would be without any."""
    values_by_label: dict[str, set[str]] = {}
    for label, value in _modes_by_label(registry.DIALECTS):
        values_by_label.setdefault(label, set()).add(value)
    for label, values in values_by_label.items():
        if len(values) > 1 and label in labels and labels[label] not in values:
            expected = ", ".join(sorted(values))
            yield f"label {label}: {rules.shown(labels[label])} is not one of {expected}"


def _contradictions(labels: Mapping[str, str]) -> Iterator[str]:
    """Spellings of one label with different values: the node would serve neither mode."""
    spellings = {mode.labels for mode in modes_of(labels) if len(mode.labels) > 1}
    for names in sorted(spellings):
        written = [name for name in names if name in labels]
        if len({labels[name] for name in written}) > 1:
            texts = " and ".join(f"{name}: {rules.shown(labels[name])}" for name in written)
            yield f"labels {texts} contradict each other; remove one"


def _advertised(node: nodes.Node) -> tuple[cards.Card, ...]:
    """What other systems say of the node's cards; one that names them knows more than a count."""
    answers = [answer for answer in (d.advertised(node) for d in registry.DIALECTS) if answer]
    named = (answer for answer in answers if not any(map(nodes.unnamed, answer)))
    return next(named, answers[0] if answers else ())
