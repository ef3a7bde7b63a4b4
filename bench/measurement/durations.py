"""Durations: how long something takes, once, or in the median beside a floor."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


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
        worked.append(timed_us(work))
        before_floor()
        floored.append(timed_us(floor))
    return statistics.median(worked), statistics.median(floored)


def timed_us(work: Callable[[], object]) -> float:
    """How long it took, once."""
    began = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - began) / 1000
