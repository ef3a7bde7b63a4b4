"""Reasons: what a program waits for, card by card, in words for one machine."""

from __future__ import annotations

from partage.core import refusals
from partage.local import queueing

_SHORT = {
    refusals.Code.MEMORY: "has {s.free} of {s.asked} MiB free",
    refusals.Code.COMPUTE: "has {s.free} of {s.asked} % compute free",
    refusals.Code.CARD_SICK: "is not healthy",
    refusals.Code.CARD_TAKEN: "is somebody's own",
    refusals.Code.CARD_NOT_EMPTY: "is in use",
    refusals.Code.TENANTS: "takes no more programs",
}
_MOST = 8  # cards


def told(waiting: queueing.Waiting | None) -> str:
    """Why one waits; nothing is in the way of one who is not among those who wait."""
    if waiting is None:
        return "it starts in a moment"
    if waiting.refusal is None:
        return f"there is room, but it would delay {waiting.behind}, who comes first"
    return refused(waiting.refusal)


def refused(refusal: refusals.Refusal) -> str:
    """What is short, on each card that would do."""
    found = [
        f"card {short.index} {_SHORT[short.code].format(s=short)}"
        for short in refusal.shortages
        if short.code in _SHORT
    ]
    if refusal.never or not found:
        return refusal.text
    more = f", and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ", ".join(found[:_MOST]) + more
