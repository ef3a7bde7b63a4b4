"""Series of numbers as prometheus-client's families: what is not known has no sample.

Two samples with the same labels would make a whole page invalid. There are some when a pod was
deleted by force and its successor of the same name is here already: the later one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import core

Number = int | float | None
Samples = Iterable[tuple[Sequence[str], Number]]  # label values and a number


def gauge(name: str, text: str, labels: Sequence[str], samples: Samples) -> core.Metric:
    """Numbers that go up and down."""
    family = core.GaugeMetricFamily(name, text, labels=labels)
    for values, number in _defined(samples).items():
        family.add_metric(values, number)
    return family


def counter(name: str, text: str, labels: Sequence[str], samples: Samples) -> core.Metric:
    """Numbers that grow; ``_total`` is added to the name."""
    family = core.CounterMetricFamily(name, text, labels=labels)
    for values, number in _defined(samples).items():
        family.add_metric(values, number)
    return family


def scaled(number: Number, factor: float) -> Number:
    """In another unit."""
    return None if number is None else number * factor


def total(numbers: Iterable[Number]) -> Number:
    """The sum, if all of it is known."""
    subtotal: float = 0
    for number in numbers:
        if number is None:
            return None
        subtotal += number
    return subtotal


def _defined(samples: Samples) -> dict[tuple[str, ...], float]:
    return {tuple(values): number for values, number in samples if number is not None}
