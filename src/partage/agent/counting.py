"""Counting: the device IDs that the kubelet counts by.

An ID stands for a unit of a resource (a GiB, a percent, a card) and for no card in particular: the
kubelet chooses IDs by itself, and it is the grant that says which cards they are. So IDs are
numbers, as short as possible, because the kubelet's messages are limited.

When a card is sick, as many units as it has are told to be. If they were always the same ones, the
kubelet's count of what is free would depend on which IDs it happened to have handed out. So those
are told which belong to containers on that card, and for the rest some that nobody has. Then the
kubelet's sum is right, and it shows the sickness on the right pods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from partage.kubelet import listings

_OURS = "p"


def ids(amount: int) -> list[str]:
    """The IDs of so many units."""
    return [f"{_OURS}{number}" for number in range(amount)]


def ours(registered: Iterable[str]) -> bool:
    """Whether these are IDs of ours, and not of another plugin for the same resource."""
    return all(each.startswith(_OURS) and each[1:].isdigit() for each in registered)


def listing(
    amount: int, sick: int, *, held: Collection[str] = (), held_by_sick: Collection[str] = ()
) -> tuple[listings.Unit, ...]:
    """All units; ``sick`` of them are told to be, first those of containers on sick cards."""
    everything = ids(amount)
    taken = frozenset(held)
    order = sorted(everything, key=lambda each: (each not in held_by_sick, each in taken))
    unhealthy = frozenset(order[:sick])
    return tuple(listings.Unit(each, each not in unhealthy) for each in everything)
