"""Reviews of a small cluster: one node with two cards of 16 GiB."""

from __future__ import annotations

import pytest

from partage.admission import known_cards, reviews
from partage.core import cards
from partage.dialects import contract, memory_units, nodes


@pytest.fixture
def cluster() -> known_cards.KnownCards:
    """One node with two cards."""
    return one_node("T4")


def one_node(model: str) -> known_cards.KnownCards:
    """A cluster of one node with two cards of a model."""
    all_cards = known_cards.KnownCards(memory_units.Unit(contract.Settings()))
    named = [cards.Card(uuid=f"GPU-{i}", index=i, memory_mib=16384, model=model) for i in range(2)]
    metadata = nodes.Metadata(name="n1", annotations={nodes.CARDS: nodes.encode(named)})
    all_cards.put(nodes.Node(metadata))
    return all_cards


@pytest.fixture
def reviewer(cluster: known_cards.KnownCards) -> reviews.Reviews:
    """As it is by default."""
    return reviews.Reviews(cluster, reviews.Options())
