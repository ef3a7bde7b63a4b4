"""The device IDs that the kubelet counts by.

An ID stands for a unit of a resource (a GiB, a percent, a card) and for no card in particular: the
kubelet chooses IDs by itself, and it is the grant that says which cards they are. So IDs are
numbers, as short as possible, because the kubelet's messages are limited.

When a card is unhealthy, the kubelet is told that as many units are unhealthy as the card has. If
they were always the same ones, the kubelet's count of what is free would depend on which IDs it
happened to have handed out. So the units of containers on that card are named first, and then some
that no container has. Then the kubelet's sum is right, and it shows the problem on the right pods.

When a card is cordoned, what is free of it must not be offered, and who has the rest must not be
disturbed: a kubelet that starts anew refuses to start containers again whose units are unhealthy.
So units that no container has are withheld, as many as nobody has of that card.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable

from partage.kubelet import device_lists

_OURS = "p"


def ids(amount: int) -> list[str]:
    """The IDs of so many units."""
    return [f"{_OURS}{number}" for number in range(amount)]


def ours(registered: Iterable[str]) -> bool:
    """Whether these are IDs of ours, and not of another plugin for the same resource."""
    return all(device_id.startswith(_OURS) and device_id[1:].isdigit() for device_id in registered)


def listing(
    amount: int,
    unhealthy_count: int,
    *,
    held: Collection[str] = (),
    held_by_unhealthy: Collection[str] = (),
    withheld_count: int = 0,
) -> tuple[device_lists.Unit, ...]:
    """All units; those of containers on unhealthy cards are the first to be told unhealthy.

    What is withheld is told unhealthy, too, and is never a unit that somebody holds.
    """
    everything = ids(amount)
    taken = frozenset(held)
    order = sorted(
        everything, key=lambda device_id: (device_id not in held_by_unhealthy, device_id in taken)
    )
    idle = (device_id for device_id in order[unhealthy_count:] if device_id not in taken)
    unhealthy = frozenset((*order[:unhealthy_count], *itertools.islice(idle, withheld_count)))
    return tuple(
        device_lists.Unit(device_id, device_id not in unhealthy) for device_id in everything
    )
