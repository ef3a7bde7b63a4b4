"""How long to wait after a failure.

Delays double up to a bound, and each is shortened by chance, so that a hundred clients of a server
that comes back do not come back together. They start small again only after things went well for a
while: a server that accepts and fails at once must not be asked in a tight loop.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

FIRST_S = 0.5
MOST_S = 30.0
CALM_S = 10.0


class Backoff:
    """The delays of one client; tell it when things go well."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._next_s = FIRST_S
        self._well_since: float | None = None

    def well(self) -> None:
        """From now on things go well, until the next failure."""
        if self._well_since is None:
            self._well_since = self._clock()

    def after_failure_s(self, asked_s: float = 0.0) -> float:
        """The wait after a failure; ``asked_s`` is what the server asks for at least."""
        if self._well_since is not None and self._clock() - self._well_since >= CALM_S:
            self._next_s = FIRST_S
        self._well_since = None
        delay_s = self._next_s * (1.0 + self._chance()) / 2
        self._next_s = min(2 * self._next_s, MOST_S)
        return max(delay_s, min(asked_s, MOST_S))
