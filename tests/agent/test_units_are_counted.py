"""Device IDs stand for units; when cards are unhealthy, the right ones are told to be."""

from __future__ import annotations

import functools

import hypothesis
import pytest
from hypothesis import strategies as st

from partage.agent.resources import device_ids
from partage.kubelet import device_lists


@hypothesis.given(st.integers(0, 300))
def test_ids_are_unique_and_ours(amount: int) -> None:
    """As many as asked, each once, short enough for the kubelet, and known again."""
    ids = device_ids.ids(amount)

    assert len(set(ids)) == len(ids) == amount
    assert device_ids.ours(ids)
    device_lists.checked("x/y", device_ids.listing(amount, 0))  # raises for what a kubelet refuses


def test_ids_stay_the_same_when_cards_come() -> None:
    """Containers keep what they have when a node offers more, or less."""
    assert device_ids.ids(5)[:3] == device_ids.ids(3)


@pytest.mark.parametrize("foreign", ["GPU-1", "0", "p", "q1", "px", "-p1", "p1::0"])
def test_ids_of_others_are_not_ours(foreign: str) -> None:
    """One of them is enough: the resource is somebody else's."""
    assert not device_ids.ours(["p0", foreign])


def test_a_resource_without_ids_is_nobodys() -> None:
    """A plugin that went leaves no IDs, and then the resource can be served."""
    assert device_ids.ours([])


@st.composite
def situations(draw: st.DrawFn) -> tuple[int, int, set[str], set[str]]:
    """How many units, how many of them unhealthy; IDs that are held, and those on unhealthy cards.

    Some of the held IDs are no longer offered: the kubelet remembers them.
    """
    amount = draw(st.integers(0, 12))
    unhealthy = draw(st.integers(0, amount))
    every = device_ids.ids(amount + 2)
    held = draw(st.sets(st.sampled_from(every)))
    by_unhealthy = draw(st.sets(st.sampled_from(sorted(held)))) if held else set()
    return amount, unhealthy, held, by_unhealthy


@hypothesis.given(situations(), st.integers(0, 14))
def test_what_is_withheld_is_never_held(
    situation: tuple[int, int, set[str], set[str]], withheld_count: int
) -> None:
    """So many idle units more are told unhealthy, if there are as many, and no others."""
    amount, unhealthy_count, held, by_unhealthy = situation
    listing = functools.partial(
        device_ids.listing, amount, unhealthy_count, held=held, held_by_unhealthy=by_unhealthy
    )
    before, after = listing(), listing(withheld_count=withheld_count)
    lost = {unit.id for unit in before if not unit.healthy}
    withheld = {unit.id for unit in after if not unit.healthy} - lost
    idle = set(device_ids.ids(amount)) - held - lost

    assert {unit.id for unit in after if not unit.healthy} >= lost
    assert withheld <= idle
    assert len(withheld) == min(withheld_count, len(idle))


@hypothesis.given(situations())
def test_the_right_units_are_told_to_be_unhealthy(
    situation: tuple[int, int, set[str], set[str]],
) -> None:
    """Exactly so many: first those held on unhealthy cards, then free ones, then others."""
    amount, unhealthy_count, held, by_unhealthy = situation
    listed = device_ids.listing(amount, unhealthy_count, held=held, held_by_unhealthy=by_unhealthy)
    offered = set(device_ids.ids(amount))
    unhealthy = {unit.id for unit in listed if not unit.healthy}

    assert [unit.id for unit in listed] == device_ids.ids(amount)
    assert len(unhealthy) == unhealthy_count
    concerned, free = by_unhealthy & offered, offered - held
    if unhealthy - concerned:
        assert concerned <= unhealthy
    if unhealthy - concerned - free:
        assert free <= unhealthy
