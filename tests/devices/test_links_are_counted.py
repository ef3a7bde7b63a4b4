"""How near two cards are, from what NVML tells of their links: the parts no simulated card has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core.cards import Link
from partage.devices import card_links
from partage.devices.card_links import Ends

LEVELS = {
    0: Link.PIX,
    10: Link.PIX,
    20: Link.PXB,
    30: Link.PHB,
    40: Link.NODE,
    50: Link.SYS,
}
COUNTS = st.integers(0, 18)


@pytest.mark.parametrize("level", LEVELS)
def test_levels_of_pci_are_those_of_nvidia_smi(level: int) -> None:
    """The nearer the larger."""
    assert card_links.nearness(Ends(bus="a"), Ends(bus="b"), level) == LEVELS[level]


@pytest.mark.parametrize("level", [None, 77])
def test_what_is_not_known_is_no_link(level: int | None) -> None:
    """Not told, or a level of the future."""
    assert card_links.nearness(Ends(bus="a"), Ends(bus="b"), level) == 0


@given(COUNTS, COUNTS, COUNTS)
def test_links_over_switches_are_as_many_as_both_have(
    first: int, second: int, between: int
) -> None:
    """Direct ones win; any NVLink is nearer than any PCI."""
    near = card_links.nearness(
        Ends(bus="a", at={"b": between, "c": 9}, at_switches=first),
        Ends(bus="b", at={"a": between}, at_switches=second),
        10,
    )
    links = between or min(first, second)
    assert near == (links * Link.NVLINK if links else Link.PIX)
    assert not links or near > Link.PIX


def test_a_card_without_an_address_is_linked_to_nobody() -> None:
    """The end of a link that tells no address is not that card."""
    assert card_links.nearness(Ends(bus="a", at={"": 4}), Ends(bus=""), None) == 0
