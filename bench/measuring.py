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


def compare_us(
    work: Callable[[], object],
    floor: Callable[[], object],
    *,
    before_work: Callable[[], object] = lambda: None,
    before_floor: Callable[[], object] = lambda: None,
    rounds: int,
) -> tuple[float, float]:
    """The medians of work and floor, measured in turns so that the machine's moods hit both."""
    worked, floored = [], []
    for _ in range(rounds):
        before_work()
        worked.append(_timed_us(work))
        before_floor()
        floored.append(_timed_us(floor))
    return statistics.median(worked), statistics.median(floored)


def _timed_us(work: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - began) / 1000
