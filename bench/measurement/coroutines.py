"""Coroutines: run one to its end by hand, and see how long it holds everybody else up.

A verb may answer at once, or pause now and then so that others are served. Between two pauses
nothing else runs in the extender's process: that is a stop.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def result(answer: bytes | Awaitable[bytes]) -> bytes:
    """The answer, whether it is there already or has to be waited for."""
    return answer if isinstance(answer, bytes) else _finish(answer.__await__(), [])


def longest_step_ms(ask: Callable[[], bytes | Awaitable[bytes]]) -> float:
    """The processor time of the longest stretch without a pause."""
    ends_ns = [time.thread_time_ns()]
    answer = ask()
    if not isinstance(answer, bytes):
        _finish(answer.__await__(), ends_ns)
    ends_ns.append(time.thread_time_ns())
    steps_ns = (end - begin for begin, end in itertools.pairwise(ends_ns))
    return max(steps_ns) / 1e6


def _finish(steps: Generator[Any, Any, T], ends_ns: list[int]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            value: T = stop.value
            return value
        ends_ns.append(time.thread_time_ns())
