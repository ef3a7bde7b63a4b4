"""Prices: the time of a lesson, which is made off the path of a decision."""

from __future__ import annotations

from bench.measurement import durations
from bench.measurement.results import Line
from partage.core.policies import prices

_SIZES = (5, 11, 14, 16, 22, 23, 27, 29, 32, 33, 35, 37, 44, 46, 47, 48, 55, 59, 65, 81, 100)


def run() -> list[Line]:
    """A mix of 21 sizes, as the openb workload has; the floor is one knapsack over all cells."""
    mix = {size: 1.0 + size % 7 for size in _SIZES}
    took_us, floor_us = durations.compare_us(
        lambda: prices.values(mix), lambda: _knapsack(mix), rounds=25
    )
    what = f"values of a card for a mix of {len(mix)} sizes"
    return [Line(what=what, took_us=took_us, floor="knapsack", floor_us=floor_us, aim=200)]


def _knapsack(mix: dict[int, float]) -> list[float]:
    worth = [0.0] * (prices.CELLS + 1)
    for cell in range(1, prices.CELLS + 1):
        worth[cell] = max(
            (worth[cell - size] + size / prices.CELLS for size in mix if size <= cell), default=0.0
        )
    return worth
