"""Usage rows: what is shown of a tenant on a card. What is counted, in which mode, what it got.

The report of a node and the view of a machine have the same columns, and get them here. What is not
counted is None. The library counts time only where it has to look at launches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol, TypeVar

import msgspec

from partage.core import cards, demands, grants
from partage.fence import usage
from partage.fence.store import limits

Key_co = TypeVar("Key_co", bound=Hashable, covariant=True)


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a row that is measured."""

    used_bytes: int | None = None
    peak_bytes: int | None = None
    refused: int | None = None
    busy_ns: int | None = None
    throttled_ns: int | None = None
    throttled: int | None = None
    launches: int | None = None


NO_MEMORY_YET = Counts(used_bytes=0, peak_bytes=0, refused=0)
NOTHING_YET = msgspec.structs.replace(
    NO_MEMORY_YET, busy_ns=0, throttled_ns=0, throttled=0, launches=0
)


def counted(now: usage.CardUsage) -> Counts:
    """What a fence keeps account of."""
    memory = Counts(used_bytes=now.used_bytes, peak_bytes=now.peak_bytes, refused=now.refused)
    if now.mode is limits.Mode.NONE and not now.paused:
        return memory
    return msgspec.structs.replace(
        memory,
        busy_ns=now.busy_ns,
        throttled_ns=now.throttled_ns,
        throttled=now.throttled,
        launches=now.launches,
    )


def mode_in_force(now: usage.CardUsage | limits.CardLimits) -> tuple[str, int | None]:
    """How the card's time is limited, and the ceiling if there is one."""
    burst = now.mode is limits.Mode.BURST
    ceiling_percent = now.ceiling_millionths // limits.MILLIONTHS_PER_PERCENT
    return str(now.mode), ceiling_percent if burst else None


def share_in_force(now: usage.CardUsage) -> float | None:
    """The share of the card's time that is held or guaranteed; None if none is."""
    if now.mode not in (limits.Mode.FIXED, limits.Mode.BURST):
        return None
    return now.share_millionths / limits.MILLIONTHS_PER_PERCENT


def mode_asked(container: grants.ContainerGrant, *, timed: bool) -> tuple[str, int | None]:
    """The same, of a container that has not started."""
    if not timed:
        return str(limits.Mode.NONE), None
    burst = container.compute_mode is demands.ComputeMode.BURST
    ceiling_percent = container.compute_ceiling_percent or cards.FULL_PERCENT
    return str(container.compute_mode), ceiling_percent if burst else None


class Rate(msgspec.Struct, frozen=True):
    """What was got of a card between two moments."""

    compute_percent: float | None
    throttled_percent: float | None  # above 100 where several processes wait


class Row(Protocol[Key_co]):
    """A row whose counters only grow."""

    @property
    def key(self) -> Key_co:
        """What makes it the same in two moments."""

    @property
    def busy_ns(self) -> int | None: ...

    @property
    def throttled_ns(self) -> int | None: ...


def rates(
    before: Iterable[Row[Key_co]], now: Iterable[Row[Key_co]], elapsed_ns: int
) -> dict[Key_co, Rate]:
    """What rows got between two moments; those that are not in both are left out."""
    if elapsed_ns <= 0:
        return {}
    earlier = {row.key: row for row in before}
    return {
        row.key: Rate(
            _percent(earlier[row.key].busy_ns, row.busy_ns, elapsed_ns),
            _percent(earlier[row.key].throttled_ns, row.throttled_ns, elapsed_ns),
        )
        for row in now
        if row.key in earlier
    }


def _percent(before_ns: int | None, now_ns: int | None, elapsed_ns: int) -> float | None:
    """None, too, if the counter went back: it was started again."""
    if before_ns is None or now_ns is None or now_ns < before_ns:
        return None
    return 100 * (now_ns - before_ns) / elapsed_ns
