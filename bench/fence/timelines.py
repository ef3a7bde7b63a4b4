"""Timelines: when the kernels of one tenant ran, and what follows from it.

The simulated card runs one kernel at a time and each takes as long as it was told to. So the moment
at which a kernel ended also tells when it began, and a tenant's share of any stretch of time is
known exactly, kernels cut by its edges included.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator

import msgspec

NS_PER_MS = 1_000_000
STEP_NS = 5 * NS_PER_MS


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels of one tenant, all of the same length, in the order in which they ended."""

    kernel_ns: int
    began_ns: int  # before the first launch; CLOCK_MONOTONIC, as all moments here
    ended_ns: list[int]

    @property
    def last_ns(self) -> int:
        """When the last kernel ended."""
        return self.ended_ns[-1] if self.ended_ns else self.began_ns

    def done_ns(self, moment_ns: int) -> int:
        """Card time used before a moment."""
        ended = bisect.bisect_right(self.ended_ns, moment_ns)
        running_ns = 0
        if ended < len(self.ended_ns):
            running_ns = max(0, moment_ns - (self.ended_ns[ended] - self.kernel_ns))
        return ended * self.kernel_ns + running_ns

    def percent(self, since_ns: int, until_ns: int) -> float:
        """The tenant's part of the card's time in between."""
        return 100 * (self.done_ns(until_ns) - self.done_ns(since_ns)) / (until_ns - since_ns)

    def windows(
        self, since_ns: int, until_ns: int, *, length_ns: int, step_ns: int | None = None
    ) -> Iterator[tuple[int, float]]:
        """The tenant's part in every full window in between, with the window's beginning."""
        for start_ns in range(since_ns, until_ns - length_ns + 1, step_ns or length_ns):
            yield start_ns, self.percent(start_ns, start_ns + length_ns)

    def longest_gap_ns(self, since_ns: int, until_ns: int) -> int:
        """The longest time without an end of a kernel."""
        inside = [end for end in self.ended_ns if since_ns < end < until_ns]
        edges = [since_ns, *inside, until_ns]
        return max(after - before for before, after in itertools.pairwise(edges))

    def first_end_ns(self, since_ns: int) -> int | None:
        """The first end of a kernel after a moment, if there is one."""
        index = bisect.bisect_right(self.ended_ns, since_ns)
        return self.ended_ns[index] if index < len(self.ended_ns) else None


class Reaction(msgspec.Struct, frozen=True):
    """How soon a tenant was where it should be; None: never in the time that was looked at."""

    reached_ms: float | None  # for the length of one window, and on average ever after
    settled_ms: float | None  # and in every single window after


def reaction(
    timeline: Timeline,
    since_ns: int,
    until_ns: int,
    *,
    length_ns: int,
    is_there: Callable[[float], bool],
) -> Reaction:
    """How long after ``since`` windows begin in which the tenant is there."""
    reached = settled = None
    for start_ns, percent in timeline.windows(
        since_ns, until_ns, length_ns=length_ns, step_ns=STEP_NS
    ):
        after_ms = (start_ns - since_ns) / NS_PER_MS
        if not is_there(percent):
            settled = None
            continue
        settled = after_ms if settled is None else settled
        if reached is None and is_there(timeline.percent(start_ns, until_ns)):
            reached = after_ms
    return Reaction(reached, settled)
