"""Cordons: the cards of a node that an administrator closed to newcomers.

They are one annotation of the node, JSON with a version: which cards, by uuid or by index, and why.
``partage cordon`` writes it, the extender and the node's agent read it, and ``kubectl describe
node`` shows it. It is apart from the annotation in which the agent describes the cards, because it
has another author, and has to outlive agents.

Where it cannot be read, all cards of the node count as cordoned: somebody wanted a card to be left
alone, and nothing says which. What was granted before stays, and the problem is reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from partage.core import cards
from partage.dialects import nodes, rules

CORDONED = "partage.dev/cordoned-cards"
VERSION = 1
LONGEST_REASON = 200  # characters

_UNREADABLE = f"the annotation {CORDONED} cannot be read"


class Reading(msgspec.Struct, frozen=True):
    """The cordoned cards of a node, and what is wrong with the annotation that names them."""

    reasons: Mapping[str, str] = {}  # by uuid of the card; empty: nobody said why
    problems: tuple[str, ...] = ()


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """Version 1. A field may be added with a default; any other change is a new version."""

    version: int
    cards: dict[str, str]  # the reason, by uuid or index


def read(annotations: Mapping[str, str], node_cards: Iterable[cards.Card]) -> Reading:
    """Which of its cards a node's annotations close."""
    named = tuple(node_cards)
    try:
        words = written(annotations)
    except nodes.Unreadable as unreadable:
        return Reading(
            dict.fromkeys((card.uuid for card in named), _UNREADABLE), (str(unreadable),)
        )
    reasons = {c.uuid: words[name] for c in named for name in names(c) if name in words}
    strays = [word for word in words if named and find(word, named) is None]
    field = rules.annotation_field(CORDONED)
    return Reading(
        reasons, tuple(f"{field}: the node has no card {rules.shown(word)}" for word in strays)
    )


def written(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotation as it is: the reason, by uuid or index; raises nodes.Unreadable."""
    text = annotations.get(CORDONED)
    if text is None:
        return {}
    record = nodes.decoded(CORDONED, text, _Record)
    field = rules.annotation_field(CORDONED)
    if record.version != VERSION:
        problem = f"its version is {record.version}, but only version {VERSION} is supported"
        raise nodes.Unreadable(field, problem)
    if len(record.cards) > nodes.MOST_CARDS:
        raise nodes.Unreadable(field, f"{len(record.cards)} cards are too many")
    for word, reason in record.cards.items():
        if not word or len(word) > rules.LONGEST_WORD or len(reason) > LONGEST_REASON:
            raise nodes.Unreadable(
                field, f"{rules.shown(word)}: the name or the reason is too long"
            )
    return record.cards


def encode(words: Mapping[str, str]) -> str | None:
    """The text of the annotation; None where no card is cordoned, so that it is taken away."""
    if not words:
        return None
    return msgspec.json.encode(_Record(version=VERSION, cards=dict(words))).decode()


def find(word: str, node_cards: Iterable[cards.Card]) -> cards.Card | None:
    """The card that a uuid or an index names."""
    return next((card for card in node_cards if word in names(card)), None)


def added(words: Mapping[str, str], card: cards.Card, reason: str | None) -> dict[str, str]:
    """The same cordons, and this card's, once; without a reason it keeps the one it had."""
    before = next((text for name, text in words.items() if name in names(card)), "")
    word = str(card.index) if nodes.unnamed(card) else card.uuid
    return {**lifted(words, names(card)), word: before if reason is None else reason}


def lifted(words: Mapping[str, str], closed: Collection[str]) -> dict[str, str]:
    """The same cordons without those that go by these names."""
    return {name: reason for name, reason in words.items() if name not in closed}


def names(card: cards.Card) -> tuple[str, str]:
    """What a card may be called in the annotation."""
    return card.uuid, str(card.index)
