"""Cordons on a node: read by uuid or index, bounded, and never taken for open when damaged."""

from __future__ import annotations

import json

import hypothesis
import pytest
from hypothesis import strategies as st

from partage.core import cards
from partage.dialects import cordons, node_readings, nodes

CARDS = tuple(cards.Card(uuid=f"GPU-{i}", index=i, memory_mib=1024) for i in range(3))


def node(cordon: object) -> nodes.Node:
    """A node with three cards and an annotation."""
    text = cordon if isinstance(cordon, str) else json.dumps(cordon)
    annotations = {nodes.CARDS: nodes.encode(CARDS), cordons.CORDONED: text}
    return nodes.Node(nodes.Metadata("n", "u", annotations))


def test_cards_go_by_uuid_or_index() -> None:
    """Each with its reason; a word that names no card is reported, and the others count."""
    reading = node_readings.read(
        node({"version": 1, "cards": {"GPU-2": "fan", "0": "", "GPU-9": "gone"}})
    )

    assert reading.node.cordons == {"GPU-2": "fan", "GPU-0": ""}
    assert reading.problems == (
        "metadata.annotations[partage.dev/cordoned-cards]: the node has no card 'GPU-9'",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "GPU-1",
        "[" * 100_000,
        {"cards": {"0": ""}},
        {"version": 2, "cards": {"0": ""}},
        {"version": 1, "cards": ["0"]},
        {"version": 1, "cards": {"": ""}},
        {"version": 1, "cards": {"x" * 1000: ""}},
        {"version": 1, "cards": {"0": "x" * 1000}},
        {"version": 1, "cards": {str(i): "" for i in range(300)}},
    ],
)
def test_what_cannot_be_read_closes_all_cards(text: object) -> None:
    """Somebody wanted a card to be left alone, and nothing says which."""
    reading = node_readings.read(node(text))

    assert reading.node.cordons.keys() == {"GPU-0", "GPU-1", "GPU-2"}
    assert len(reading.problems) == 1


def test_a_node_without_cards_has_nothing_to_report() -> None:
    """Its agent may not have come yet."""
    text = json.dumps({"version": 1, "cards": {"GPU-1": ""}})
    reading = node_readings.read(nodes.Node(nodes.Metadata("n", "u", {cordons.CORDONED: text})))
    assert (reading.node.cordons, reading.problems) == ({}, ())


@hypothesis.given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(CARDS), st.none() | st.text(max_size=20)))
)
def test_what_is_written_is_what_is_read(
    steps: list[tuple[bool, cards.Card, str | None]],
) -> None:
    """Whatever was added and lifted, in any order; without cordons there is no annotation."""
    words: dict[str, str] = {}
    expected: dict[str, str] = {}
    for adds, card, reason in steps:
        if adds:
            words = cordons.added(words, card, reason)
            expected[card.uuid] = expected.get(card.uuid, "") if reason is None else reason
        else:
            words = cordons.lifted(words, cordons.names(card))
            expected.pop(card.uuid, None)
        text = cordons.encode(words)
        assert (text is None) == (not expected)
        annotations = {} if text is None else {cordons.CORDONED: text}
        assert cordons.read(annotations, CARDS) == cordons.Reading(expected)


def test_a_card_that_nobody_named_goes_by_its_index() -> None:
    """The name that it has inside Partage is not a name to write down."""
    (card,) = nodes.counted(1, 1024)
    assert cordons.added({}, card, "fan") == {"0": "fan"}
    assert cordons.read({cordons.CORDONED: cordons.encode({"0": "fan"}) or ""}, [card]).reasons == {
        card.uuid: "fan"
    }


def test_agents_do_not_publish_cordons() -> None:
    """They have another author, and are lifted while an agent is away."""
    assert "cordon" not in nodes.encode(CARDS)
