"""The screen of ``partage top``: drawn anew each second until somebody presses q.

A sample that cannot be had is no end: the agent may be starting anew. What was there is shown with
the reason, and the next second tries again.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator

from partage.agent import reporting
from partage.cli import top_drawing, top_sampling
from partage.core import errors

_REFRESH_S = 1.0
_QUIT = b"qQ\x03\x04"


def show(source: top_sampling.Source) -> None:
    """Until q is pressed; whoever interrupts it means the same."""
    from rich import console, live

    screen = console.Console()
    unicode = screen.encoding.lower().startswith("utf")
    sampler = _Sampler(source)
    with (
        contextlib.suppress(KeyboardInterrupt),
        live.Live(console=screen, screen=True, auto_refresh=False) as drawing,
        _keys() as keys,
    ):
        while True:
            sample, heading = sampler.next()
            drawn = top_drawing.drawn(sample, heading=heading, unicode=unicode)
            drawing.update(drawn, refresh=True)
            if _quits(keys, time.monotonic() + _REFRESH_S):
                return


class _Sampler:
    """Samples, each with what happened since the last; the first one must succeed."""

    def __init__(self, source: top_sampling.Source) -> None:
        self._source = source
        self._last = source()
        self._rates: dict[reporting.Key, reporting.Rate] = {}

    def next(self) -> tuple[top_sampling.Sample, str]:
        """The newest sample, and the line above it."""
        problem = ""
        try:
            now = self._source()
            self._rates = reporting.rates(self._last, now) or self._rates
            self._last = now
        except errors.PartageError as error:
            problem = f" (old: {error})"
        moment = time.strftime("%H:%M:%S", time.localtime(self._last.taken_ns / 1e9))
        heading = f"{self._last.node}  {moment}{problem}  q quits"
        return top_sampling.Sample(self._last, self._rates), heading


@contextlib.contextmanager
def _keys() -> Iterator[int | None]:
    """Where keys come from, one by one and unseen; None without a keyboard."""
    if not sys.stdin.isatty():
        yield None
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _quits(keys: int | None, deadline_s: float) -> bool:
    """Wait for the next drawing; whether somebody wants to end instead."""
    while (left_s := deadline_s - time.monotonic()) > 0:
        if keys is None:
            time.sleep(left_s)
        elif select.select([keys], [], [], left_s)[0]:
            pressed = os.read(keys, 64)
            if not pressed or any(key in _QUIT for key in pressed):
                return True
    return False
