"""Device IDs stand for units; when cards are sick, the right ones are told to be."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from partage.agent import counting
from partage.kubelet import listings


@hypothesis.given(st.integers(0, 300))
def test_ids_are_unique_and_ours(amount: int) -> None:
    """As many as asked, each once, short enough for the kubelet, and known again."""
    ids = counting.ids(amount)

    assert len(set(ids)) == len(ids) == amount
    assert counting.ours(ids)
    listings.checked("x/y", counting.listing(amount, 0))  # raises for what a kubelet refuses


def test_ids_stay_the_same_when_cards_come() -> None:
    """Containers keep what they have when a node offers more, or less."""
    assert counting.ids(5)[:3] == counting.ids(3)


@pytest.mark.parametrize("foreign", ["GPU-1", "0", "p", "q1", "px", "-p1", "p1::0"])
def test_ids_of_others_are_not_ours(foreign: str) -> None:
    """One of them is enough: the resource is somebody else's."""
    assert not counting.ours(["p0", foreign])


def test_a_resource_without_ids_is_nobodys() -> None:
    """A plugin that went leaves no IDs, and then the resource can be served."""
    assert counting.ours([])


@st.composite
def situations(draw: st.DrawFn) -> tuple[int, int, set[str], set[str]]:
    """So many units and sick ones; IDs that are held, and those of them held on sick cards.

    Some of the held IDs are no longer offered: the kubelet remembers them.
    """
    amount = draw(st.integers(0, 12))
    sick = draw(st.integers(0, amount))
    every = counting.ids(amount + 2)
    held = draw(st.sets(st.sampled_from(every)))
    by_sick = draw(st.sets(st.sampled_from(sorted(held)))) if held else set()
    return amount, sick, held, by_sick


@hypothesis.given(situations())
def test_the_right_units_are_told_to_be_sick(
    situation: tuple[int, int, set[str], set[str]],
) -> None:
    """Exactly so many: those held on sick cards, then free ones, then (none is left) others."""
    amount, sick, held, by_sick = situation
    listed = counting.listing(amount, sick, held=held, held_by_sick=by_sick)
    offered = set(counting.ids(amount))
    unhealthy = {unit.id for unit in listed if not unit.healthy}

    assert [unit.id for unit in listed] == counting.ids(amount)
    assert len(unhealthy) == sick
    concerned, free = by_sick & offered, offered - held
    if unhealthy - concerned:
        assert concerned <= unhealthy
    if unhealthy - concerned - free:
        assert free <= unhealthy
