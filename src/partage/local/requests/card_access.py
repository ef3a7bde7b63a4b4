"""Which cards a request may have at all: those that nobody else gives away.

On a machine that Slurm uses, too, some cards are Slurm's. Which ones is found by others and handed
in; here it becomes part of the demand, so that whoever decides for those that wait, decides right
for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from partage.core import cards
from partage.devices import nvml


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The cards that a request may have, and why not the others."""

    uuids: frozenset[str] | None = None  # None: all
    why: str = ""  # what the others are: "managed by Slurm (gres.conf)"
    instead: str = ""  # how to get one of the others

    def allows(self, uuid: str) -> bool:
        """Whether a request may have this card."""
        return self.uuids is None or uuid in self.uuids

    def allowed(self, machine_cards: Sequence[cards.Card]) -> tuple[str, ...]:
        """The uuids of those that it may have; empty if there is nothing to choose between."""
        if self.uuids is None:
            return ()
        return tuple(card.uuid for card in machine_cards if card.uuid in self.uuids)

    def note(self, machine_cards: Sequence[cards.Card]) -> str:
        """What the cards are that it may not have; empty if it may have all of them."""
        others = [str(card.index) for card in machine_cards if not self.allows(card.uuid)]
        if not others:
            return ""
        subject = f"card {others[0]} is" if len(others) == 1 else f"cards {', '.join(others)} are"
        return f"{subject} {self.why}"


EVERY = Access()
Gate = Callable[[Sequence[nvml.Device]], Access]


def open_gate(_devices: Sequence[nvml.Device]) -> Access:
    """Where nobody else gives cards away."""
    return EVERY
