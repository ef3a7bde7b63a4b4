"""The send window: how many Bindings are on their way at once. The others wait for their turn.

An API server that is busy does not become quicker by more requests. It answers each of them later,
until they run out of time, and what ran out of time is sent again. So the number of Bindings on
their way is bounded, by what the answers say: it grows by one for each round of answers that came
in good time, and is halved when they are slow, do not come, or say "too many requests". A halving
counts for the Bindings that are sent after it; those that were under way are of the past.

A server that turns one Binding away and asks for a pause means that one. If it does so twice in a
row it means all of them, and nothing is sent for that time.

A bind that finds the window full waits in order. A bind that could not be sent in time is refused
at once, while kube-scheduler still listens.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable

LEAST = 2
SLOW_S = 0.5  # an answer that took longer says that the server is busy
MOST_PAUSE_S = 5.0  # that is kept, whatever is asked for: nothing else would open the window again
_FIRST = 8  # the size at the start
_WEIGHT = 0.1  # of the newest answer in the mean


class TooLate(Exception):
    """The turn would come too late; ``ahead`` others wait before it."""

    def __init__(self, ahead: int, pause_s: float) -> None:
        pause = f", and it asked for a pause of {pause_s:.1f} s" if pause_s > 0 else ""
        super().__init__(f"{ahead} Bindings wait before this one{pause}")
        self.ahead = ahead


class Window:
    """Enter it, send, and leave it with what became of the Binding."""

    def __init__(self, *, most: int, clock: Callable[[], float]) -> None:
        self._most = max(LEAST, most)
        self._clock = clock
        self._size = float(min(_FIRST, self._most))
        self._waiting: collections.deque[asyncio.Future[None]] = collections.deque()
        self._closed_until = 0.0  # the server asked for a pause
        self._halved_at = -1.0
        self._turned_away = 0  # in a row, with a pause asked for
        self._mean_s = 0.01  # of an answer
        self.in_flight = 0

    @property
    def size(self) -> int:
        """How many Bindings may be on their way at once now."""
        return int(self._size)

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._waiting)

    async def enter(self, deadline: float, *, first: bool = False) -> None:
        """Wait for a turn; raises TooLate if there is none before the deadline.

        One that was turned away has waited before, and is ``first`` among those that wait.
        """
        if self._is_open() and not self._waiting and self._clock() <= deadline:
            self.in_flight += 1
            return
        if self._clock() + self._expected_wait_s(0 if first else len(self._waiting)) > deadline:
            raise self._too_late()
        await self._wait(deadline, first=first)

    def leave(self, sent_at: float, *, overloaded: bool, pause_s: float = 0.0) -> None:
        """The Binding has ended; ``overloaded`` if the server failed because it had no time."""
        self.in_flight -= 1
        took_s = self._clock() - sent_at
        self._mean_s += _WEIGHT * (took_s - self._mean_s)
        self._turned_away = self._turned_away + 1 if pause_s > 0 else 0
        if self._turned_away > 1:
            self._pause(pause_s)
        if overloaded or took_s > SLOW_S:
            self._halve(sent_at)
        else:
            self._grow()
        self._admit()

    def _is_open(self) -> bool:
        return self.in_flight < int(self._size) and self._clock() >= self._closed_until

    def _expected_wait_s(self, ahead: int) -> float:
        rounds = (ahead + 1) / int(self._size)
        return max(0.0, self._closed_until - self._clock()) + rounds * self._mean_s

    async def _wait(self, deadline: float, *, first: bool) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        try:
            async with asyncio.timeout(deadline - self._clock()):
                await turn
        except BaseException as error:
            self._give_up(turn)
            if isinstance(error, TimeoutError):
                raise self._too_late() from None
            raise

    def _too_late(self) -> TooLate:
        return TooLate(len(self._waiting), self._closed_until - self._clock())

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():
            self.in_flight -= 1  # its turn came at the moment at which it gave up
            self._admit()
        elif turn in self._waiting:
            self._waiting.remove(turn)

    def _admit(self) -> None:
        while self._waiting and self._is_open():
            turn = self._waiting.popleft()
            if not turn.done():
                self.in_flight += 1
                turn.set_result(None)

    def _pause(self, pause_s: float) -> None:
        pause_s = min(pause_s, MOST_PAUSE_S)
        self._closed_until = max(self._closed_until, self._clock() + pause_s)
        asyncio.get_running_loop().call_later(pause_s, self._admit)

    def _halve(self, sent_at: float) -> None:
        if sent_at >= self._halved_at:
            self._size = max(float(LEAST), self._size / 2)
            self._halved_at = self._clock()

    def _grow(self) -> None:
        # A window that is not used says nothing about a larger one.
        if self.in_flight + 1 >= int(self._size):
            self._size = min(float(self._most), self._size + 1 / self._size)
