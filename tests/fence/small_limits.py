"""Limits of a tenant on a few cards."""

from __future__ import annotations

from partage.fence.store import limits

GIB = 1 << 30


def uuid(number: int) -> str:
    """The uuid of a card that is told apart by its number."""
    return f"GPU-{number:08x}-0000-4000-8000-{number:012x}"


def share(*numbers: int, memory_bytes: int = 2 * GIB) -> limits.Limits:
    """The same memory on each of these cards, and nothing about compute."""
    cards = (limits.CardLimits(uuid=uuid(n), memory_bytes=memory_bytes) for n in numbers)
    return limits.Limits(tuple(cards))
