"""The fence ``advisory``: the program is told its share, and nothing holds it to that.

For machines that have nothing better, and for tenants that request no more. What is read back says
so: nothing is limited.
"""

from __future__ import annotations

from collections.abc import Callable

from partage.fence.levels import catalog
from partage.fence.store import limits

LEVEL = catalog.Level.ADVISORY


class Advisory:
    """The share in the environment, and nothing else."""

    @property
    def level(self) -> catalog.Level:
        return LEVEL

    def apply(self, subject: catalog.Subject, requested: limits.Limits) -> catalog.Applied:
        """The share, in the environment."""
        none = tuple(limits.CardLimits(uuid=card.uuid) for card in requested.cards)
        environment = {
            "PARTAGE_MEMORY_BYTES": _listed(requested, _memory),
            "PARTAGE_COMPUTE_PERCENT": _listed(requested, _percent),
        }
        return catalog.Applied(level=LEVEL, limits=limits.Limits(none), environment=environment)

    def change(self, subject: catalog.Subject, requested: limits.Limits) -> catalog.Applied:
        """For processes that start from now on; those that run were told already."""
        return self.apply(subject, requested)

    def release(self, subject: catalog.Subject, held: limits.Limits) -> None:
        """Nothing was put up."""


def _listed(requested: limits.Limits, what: Callable[[limits.CardLimits], str]) -> str:
    """As ``GPU-…=2147483648,GPU-…=…``; cards without such a limit are left out."""
    return ",".join(f"{card.uuid}={what(card)}" for card in requested.cards if what(card))


def _memory(card: limits.CardLimits) -> str:
    return "" if card.memory_bytes == limits.NO_QUOTA else str(card.memory_bytes)


def _percent(card: limits.CardLimits) -> str:
    share = card.share_millionths / limits.MILLIONTHS_PER_PERCENT
    return f"{share:g}" if share else ""
