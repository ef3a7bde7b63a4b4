"""Model speeds: what cards compute, in TFLOPS, for claims that ask for that.

The numbers are the vendor's, for single precision (FP32) without tensor cores, at boost clock: the
one figure that all models have. A claim for 8 TFLOPS is another percentage on each model. A model
that is not here is not used for such claims; an administrator can replace the table.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

import msgspec

from partage.core import cards


class Speed(msgspec.Struct, frozen=True):
    """What a card computes whose model fits a pattern (fnmatch, case ignored)."""

    pattern: str
    tflops: float


class Share(msgspec.Struct, frozen=True):
    """How much of the cards of some models a number of TFLOPS is."""

    models: tuple[str, ...]
    not_models: tuple[str, ...]
    compute_percent: int


def table(speeds: Mapping[str, float]) -> tuple[Speed, ...]:
    """A table as a settings file has it: patterns and numbers, in order."""
    return tuple(Speed(pattern, tflops) for pattern, tflops in speeds.items())


# The first pattern that fits counts, so that what is special stands before what is general.
SPEEDS = table(
    {
        "*RTX 6000 Ada*": 91.1,
        "*RTX A6000*": 38.7,
        "*RTX A5000*": 27.8,
        "*RTX A4000*": 19.2,
        "*RTX 4090*": 82.6,
        "*RTX 4080*": 48.7,
        "*RTX 3090*": 35.6,
        "*RTX 3080*": 29.8,
        "*RTX 2080 Ti*": 13.4,
        "*B200*": 75.0,
        "*H200*": 67.0,
        "*H100*PCIe*": 51.2,
        "*H100*NVL*": 60.0,
        "*H100*": 67.0,
        "*H800*PCIe*": 51.2,
        "*H800*": 67.0,
        "*H20*": 44.0,
        "*L40S": 91.6,
        "*L40": 90.5,
        "*L20": 59.8,
        "*L4": 30.3,
        "*A100*": 19.5,
        "*A800*": 19.5,
        "*A10G": 35.0,
        "*A10": 31.2,
        "*A16": 4.5,
        "*A30": 10.3,
        "*A40": 37.4,
        "*A2": 4.5,
        "*V100S*": 16.4,
        "*V100*PCIE*": 14.0,
        "*V100*": 15.7,
        "*P100*PCIE*": 9.3,
        "*P100*": 10.6,
        "*P40": 11.8,
        "*P4": 5.5,
        "*T4": 8.1,
    }
)


def of(model: str, speeds: Iterable[Speed]) -> float | None:
    """What a model computes; None if the table does not have it."""
    name = model.lower()
    fitting = (s.tflops for s in speeds if fnmatch.fnmatchcase(name, s.pattern.lower()))
    return next(fitting, None)


def shares(tflops: Fraction, speeds: tuple[Speed, ...], step: int = 1) -> Iterator[Share]:
    """What so many TFLOPS are on each model that has as many, in steps of a percentage."""
    for position, speed in enumerate(speeds):
        exact = tflops * cards.FULL_PERCENT / Fraction(str(speed.tflops))
        percent = -(-exact // step) * step
        if percent <= cards.FULL_PERCENT:
            before = tuple(other.pattern for other in speeds[:position])
            yield Share((speed.pattern,), before, int(percent))
