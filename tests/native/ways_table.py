"""The tables of ways: what is in them is in the modules that are called `ways_`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

Give = Callable[[], None]
Way = Callable[[int], Give]

WAYS: dict[str, Way] = {}  # of memory: what is asked for is what is taken, or a little more
CONTEXTS: dict[str, Way] = {}  # take a context's worth besides
UNCOUNTED: dict[str, Way] = {}  # not the card's memory

STEP = 2 << 20
NOWHERE, DEVICE, HOST = 0, 1, 2  # of CUmemLocationType


def way(name: str, table: dict[str, Way] = WAYS) -> Callable[[Way], Way]:
    """Enter a way into its table."""

    def enter(function: Way) -> Way:
        table[name] = function
        return function

    return enter


def all_or_none(takes: Iterable[Callable[[], Give]]) -> Give:
    """Take several things, or give back what was taken before one was refused."""
    with contextlib.ExitStack() as taken:
        for take in takes:
            taken.callback(take())
        return taken.pop_all().close
