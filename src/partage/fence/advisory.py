"""The fence ``advisory``: the program is told its share, and nobody holds it to it.

For machines that have nothing better, and for tenants that ask for no more. What is read back says
so: nothing is limited.
"""

from __future__ import annotations

from collections.abc import Callable

from partage.fence import levels, limits

LEVEL = levels.Level.ADVISORY


class Advisory:
    """Words only."""

    @property
    def level(self) -> levels.Level:
        return LEVEL

    def apply(self, subject: levels.Subject, asked: limits.Limits) -> levels.Applied:
        """The share, in the environment."""
        none = tuple(limits.CardLimits(uuid=card.uuid) for card in asked.cards)
        environment = {
            "PARTAGE_MEMORY_BYTES": _told(asked, _memory),
            "PARTAGE_COMPUTE_PERCENT": _told(asked, _percent),
        }
        return levels.Applied(level=LEVEL, limits=limits.Limits(none), environment=environment)

    def change(self, subject: levels.Subject, asked: limits.Limits) -> levels.Applied:
        """For processes that start from now on; those that run were told already."""
        return self.apply(subject, asked)

    def release(self, subject: levels.Subject, held: limits.Limits) -> None:
        """There is nothing to take down."""


def _told(asked: limits.Limits, what: Callable[[limits.CardLimits], str]) -> str:
    """As MPS writes it: ``GPU-…=2147483648,GPU-…=…``; cards without such a limit are left out."""
    return ",".join(f"{card.uuid}={what(card)}" for card in asked.cards if what(card))


def _memory(card: limits.CardLimits) -> str:
    return "" if card.memory_bytes == limits.NO_QUOTA else str(card.memory_bytes)


def _percent(card: limits.CardLimits) -> str:
    share = card.share_millionths / limits.MILLIONTHS_PER_PERCENT
    return f"{share:g}" if share else ""
