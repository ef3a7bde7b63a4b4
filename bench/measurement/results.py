"""Results: lines that show what was measured beside its aim.

A :class:`Line` is a time against a floor, a :class:`Rate` is so many things a second against the
same without us, and an :class:`Amount` is a number by itself, for aims that are absolute. Each says
whether its aim is met, and nothing fails if it is not.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class Result(Protocol):
    """What a benchmark prints."""

    def show(self, name: str) -> str:
        """The line as printed."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """How many times the floor something took; less is better."""

    what: str
    took_us: float
    floor: str
    floor_us: float
    aim: float

    def show(self, name: str) -> str:
        ratio = self.took_us / self.floor_us
        met = "ok" if ratio <= self.aim else "ABOVE AIM"
        return (
            f"{name:10} {self.what:58} {self.took_us:9.1f} us = {ratio:6.2f} x {self.floor}"
            f" ({self.floor_us:.1f} us), aim {self.aim:g}: {met}"
        )


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """So many a second, as a part of what goes without us; more is better."""

    what: str
    per_second: float
    without: str
    without_per_second: float
    aim: float

    def show(self, name: str) -> str:
        ratio = self.per_second / self.without_per_second
        met = "ok" if ratio >= self.aim else "BELOW AIM"
        return (
            f"{name:10} {self.what:58} {self.per_second:9.1f} /s = {ratio:6.2f} x {self.without}"
            f" ({self.without_per_second:.1f} /s), aim at least {self.aim:g}: {met}"
        )


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """A number by itself; without an aim it is there to be read."""

    what: str
    amount: float
    unit: str
    aim: float | None = None  # at most

    def show(self, name: str) -> str:
        said = f"{name:10} {self.what:58} {self.amount:9.1f} {self.unit}"
        if self.aim is None:
            return said
        met = "ok" if self.amount <= self.aim else "ABOVE AIM"
        return f"{said}, aim {self.aim:g} {self.unit}: {met}"


class Note(msgspec.Struct, frozen=True):
    """Something to be read while it goes on."""

    text: str

    def show(self, name: str) -> str:
        return f"{name:10} {self.text}"
