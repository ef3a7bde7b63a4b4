"""Reasons for a wait: what a program waits for, card by card, in words for one machine."""

from __future__ import annotations

from collections.abc import Sequence

from partage.core import errors, refusals
from partage.local.queue import queue_order

_SHORT = {  # from the farthest
    refusals.Code.CARD_UNHEALTHY: "is not healthy",
    refusals.Code.CARD_TAKEN: "is taken whole",
    refusals.Code.CARD_NOT_EMPTY: "is in use",
    refusals.Code.TENANTS: "takes no more programs",
    refusals.Code.MEMORY: "has {s.free} of {s.asked} MiB free",
    refusals.Code.COMPUTE: "has {s.free} of {s.asked} % compute free",
}
_MOST = 2  # cards that are told one by one


class NoRoom(errors.PartageError):
    """What was asked for is not free, and somebody did not want to wait longer."""

    code = "no-room"
    exit_code = 75  # EX_TEMPFAIL: the same may work later


def reason(waiting: queue_order.Waiting | None) -> str:
    """Why a program waits; nothing is in the way of one that is not in the queue."""
    if waiting is None:
        return "it starts in a moment"
    if waiting.ticket.stopped:
        return "it is stopped, and others start before it; `fg` or `kill -CONT` lets it go on"
    if waiting.refusal is None:
        return f"there is room, but it would delay {waiting.behind}, which comes first"
    return refused(waiting.refusal)


def refused(refusal: refusals.Refusal) -> str:
    """What is short, on the cards that come nearest; of many cards only how many they are."""
    shortages = [short for short in refusal.shortages if short.code in _SHORT]
    if refusal.never or not shortages:
        return refusal.text
    nearest = sorted(shortages, key=lambda short: (-list(_SHORT).index(short.code), short.short))
    shown, rest = sorted(nearest[:_MOST], key=lambda short: short.index), nearest[_MOST:]
    words = ", ".join(f"card {s.index} {_lack(s)}" for s in shown)
    return f"{words}, and {len(rest)} more {_rest(shown, rest)}" if rest else words


def _lack(short: refusals.Shortage) -> str:
    return "has no memory free" if refusals.no_memory(short) else _SHORT[short.code].format(s=short)


def _rest(shown: Sequence[refusals.Shortage], rest: Sequence[refusals.Shortage]) -> str:
    """What is true of all cards that are not told one by one."""
    if {_lack(shortage) for shortage in rest} <= {_lack(shortage) for shortage in shown}:
        return "like these"
    amounts = {(shortage.code, shortage.asked) for shortage in (*shown, *rest)}
    least = min(shortage.free for shortage in shown)
    if len(amounts) == 1 and all(shortage.free < least for shortage in rest):
        return "have less" if len(rest) > 1 else "has less"
    return "have no room either" if len(rest) > 1 else "has no room either"
