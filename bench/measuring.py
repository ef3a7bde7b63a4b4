"""Measuring: medians, and lines that show a ratio beside its aim."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import msgspec


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One result: how many times the floor something took."""

    what: str
    took_us: float
    floor: str
    floor_us: float
    aim: float

    def show(self, name: str) -> str:
        """The line as printed."""
        ratio = self.took_us / self.floor_us
        met = "ok" if ratio <= self.aim else "ABOVE AIM"
        return (
            f"{name:9} {self.what:58} {self.took_us:9.1f} us = {ratio:6.2f} x {self.floor}"
            f" ({self.floor_us:.1f} us), aim {self.aim:g}: {met}"
        )


def median_us(work: Callable[[], object], *, before: Callable[[], object], rounds: int) -> float:
    """The median time of the work, each time after something that is not counted."""
    taken = []
    for _ in range(rounds):
        before()
        began = time.perf_counter_ns()
        work()
        taken.append((time.perf_counter_ns() - began) / 1000)
    return statistics.median(taken)
