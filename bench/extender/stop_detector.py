"""Stop detector: a real extender, with a task in its event loop that notices when the loop stops.

``python -m bench.extender.stop_detector KUBECONFIG PORT`` runs what ``partage extender`` runs, and
beside it, in the same loop, a task that wakes every millisecond: a tick. For the time between two
ticks it notes

- the processor time of the loop's thread: what we did in one go, whoever else used the machine;
- the time by the clock, less what the thread waited for a core: the same, and what it waited for
  other threads that held the interpreter;
- the time by the clock, for information: a busy machine shows in it.

SIGUSR1 prints the longest of each, and the longest garbage collection, since the last SIGUSR1 as
one line of JSON.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pathlib
import signal
import sys
import time
from typing import Any

import msgspec

from partage.scheduler import service, settings

TICK_S = 0.001
_NS_PER_MS = 1e6


class Longest(msgspec.Struct):
    """The longest stops since somebody asked, in milliseconds."""

    cpu_ms: float = 0.0
    held_ms: float = 0.0
    clock_ms: float = 0.0
    gc_ms: float = 0.0
    gc_generation: int = 0
    ticks: int = 0


class _Moment(msgspec.Struct, frozen=True):
    """What the clocks say of this thread."""

    cpu_ns: int
    clock_ns: int
    queued_ns: int  # waited for a core


class StopDetector:
    """Ticks, and watches the garbage collector."""

    def __init__(self) -> None:
        self.longest = Longest()
        self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._collecting_since_ns = 0
        gc.callbacks.append(self._collected)

    async def run(self) -> None:
        """For ever."""
        before = self._moment()
        while True:
            await asyncio.sleep(TICK_S)
            now = self._moment()
            self._note(before, now)
            before = now

    def tell(self) -> None:
        """Print the longest stops, and begin anew."""
        print(msgspec.json.encode(self.longest).decode(), flush=True)
        self.longest = Longest()

    def _note(self, before: _Moment, now: _Moment) -> None:
        clock_ns = now.clock_ns - before.clock_ns - TICK_S * 1e9
        held_ns = clock_ns - (now.queued_ns - before.queued_ns)
        longest = self.longest
        longest.cpu_ms = max(longest.cpu_ms, (now.cpu_ns - before.cpu_ns) / _NS_PER_MS)
        longest.held_ms = max(longest.held_ms, held_ns / _NS_PER_MS)
        longest.clock_ms = max(longest.clock_ms, clock_ns / _NS_PER_MS)
        longest.ticks += 1

    def _moment(self) -> _Moment:
        queued_ns = int(os.pread(self._schedstat, 64, 0).split()[1])
        return _Moment(time.thread_time_ns(), time.monotonic_ns(), queued_ns)

    def _collected(self, phase: str, facts: dict[str, Any]) -> None:
        now_ns = time.thread_time_ns()
        if phase == "start":
            self._collecting_since_ns = now_ns
            return
        took_ms = (now_ns - self._collecting_since_ns) / _NS_PER_MS
        if took_ms > self.longest.gc_ms:
            self.longest.gc_ms = took_ms
            self.longest.gc_generation = facts["generation"]


async def main(kubeconfig: pathlib.Path, port: int) -> None:
    """Serve until a signal says to stop."""
    detector = StopDetector()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, detector.tell)
    ticking = asyncio.create_task(detector.run())
    chosen = settings.Settings(
        server=settings.Server(port=port), cluster=settings.Cluster(kubeconfig=str(kubeconfig))
    )
    await service.run(chosen, started=lambda _url: None)
    ticking.cancel()


if __name__ == "__main__":
    asyncio.run(main(pathlib.Path(sys.argv[1]), int(sys.argv[2])))
