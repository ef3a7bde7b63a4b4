"""Virtual time: an event loop whose clock goes on at once to when the next one wants to wake up.

What has a rate can be watched for an hour in seconds, and its rate is counted exactly: processor
time does not go by on this clock, whatever else the machine does. It is for what waits for nothing
but time; a socket would never be waited for.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of work that begins at zero seconds of such a clock."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)


class _Selector(selectors.DefaultSelector):
    """Where a loop waits; the time goes by in one step."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; if nothing is, it is as late as the loop would have waited."""
        ready = super().select(0)
        if not ready and timeout is not None:
            self.now_s += max(0.0, timeout)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now_s
