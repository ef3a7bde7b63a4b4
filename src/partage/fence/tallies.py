"""A tally: what is counted of a container on a card, and in which mode its time is held.

What nobody counts is None. The library counts time only where it has to look at launches.
"""

from __future__ import annotations

import msgspec

from partage.core import cards, demands, grants
from partage.fence import limits, usage


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a container's row that is measured."""

    used_bytes: int | None = None
    peak_bytes: int | None = None
    refused: int | None = None
    busy_ns: int | None = None
    throttled_ns: int | None = None
    throttled: int | None = None
    launches: int | None = None


NO_MEMORY_YET = Tally(used_bytes=0, peak_bytes=0, refused=0)
NOTHING_YET = msgspec.structs.replace(
    NO_MEMORY_YET, busy_ns=0, throttled_ns=0, throttled=0, launches=0
)


def counted(now: usage.CardUsage) -> Tally:
    """What a fence keeps account of."""
    memory = Tally(used_bytes=now.used_bytes, peak_bytes=now.peak_bytes, refused=now.refused)
    if now.mode is limits.Mode.NONE and not now.paused:
        return memory
    return msgspec.structs.replace(
        memory,
        busy_ns=now.busy_ns,
        throttled_ns=now.throttled_ns,
        throttled=now.throttled,
        launches=now.launches,
    )


def in_force(now: usage.CardUsage) -> tuple[str, int | None]:
    """The mode, and the ceiling if it has one."""
    burst = now.mode is limits.Mode.BURST
    ceiling_percent = now.ceiling_millionths // limits.MILLIONTHS_PER_PERCENT
    return str(now.mode), ceiling_percent if burst else None


def asked(container: grants.ContainerGrant, *, timed: bool) -> tuple[str, int | None]:
    """The same, of a container that has not started."""
    if not timed:
        return str(limits.Mode.NONE), None
    burst = container.compute_mode is demands.ComputeMode.BURST
    ceiling_percent = container.compute_ceiling_percent or cards.FULL_PERCENT
    return str(container.compute_mode), ceiling_percent if burst else None
