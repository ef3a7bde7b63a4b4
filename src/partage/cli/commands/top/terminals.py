"""The terminal while ``partage top`` has it: another screen, keys one by one, and no echo.

It is given back as it was, however the program ends: by a key, an exception, an interrupt or
SIGTERM. While it is stopped by ctrl-z it is given back too (:data:`STOP`; the caller does it).
Waiting ends early for a key and for a change of the window's size.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from partage.cli.commands.top import keyboard

if TYPE_CHECKING:
    from types import FrameType

    from rich import console, text

RESIZE = "resize"
STOP = "stop"

_ESCAPE_S = 0.05  # what a terminal sends as one key arrives within it
_BY_SIGNAL = {signal.SIGWINCH: RESIZE, signal.SIGTSTP: STOP}


class Terminal:
    """A terminal that ``partage top`` has for a while."""

    def __init__(self, screen: console.Console, keys: int | None, woken: int) -> None:
        self._screen = screen
        self._keys = keys  # None: there is no keyboard
        self._woken = woken
        self._received = b""

    def draw(self, lines: list[text.Text]) -> None:
        """All of it at once."""
        from rich import console, control, screen

        with self._screen:
            self._screen.control(control.Control.home())
            self._screen.print(screen.Screen(console.Group(*lines)), end="")

    def wait(self, until_s: float) -> list[str]:
        """The keys that are pressed next; none if nothing happens until then."""
        while (left_s := until_s - time.monotonic()) > 0:
            ready = self._ready(min(left_s, _ESCAPE_S) if self._received else left_s)
            events = [*self._signals(ready), *self._pressed(ready)]
            if events:
                return events
        return []

    def forget(self) -> None:
        """Drop what was typed ahead: it was not an answer to the question that follows."""
        self._received = b""
        if self._keys is not None:
            termios.tcflush(self._keys, termios.TCIFLUSH)

    def _ready(self, timeout_s: float) -> list[int]:
        sources = [self._woken] if self._keys is None else [self._woken, self._keys]
        return select.select(sources, [], [], timeout_s)[0]

    def _signals(self, ready: list[int]) -> list[str]:
        numbers = os.read(self._woken, 64) if self._woken in ready else b""
        return [event for number, event in _BY_SIGNAL.items() if number in numbers]

    def _pressed(self, ready: list[int]) -> list[str]:
        came = b""
        if self._keys is not None and self._keys in ready:
            came = os.read(self._keys, 1024)
            if not came:
                return [keyboard.END_OF_INPUT]
        keys, self._received = keyboard.decoded(self._received + came, final=not ready)
        return keys


@contextlib.contextmanager
def taken(screen: console.Console) -> Iterator[Terminal]:
    """Take the terminal, and give it back."""
    with _signals() as woken, _keyboard() as keys, screen.screen(hide_cursor=True):
        yield Terminal(screen, keys, woken)


@contextlib.contextmanager
def _keyboard() -> Iterator[int | None]:
    """Where keys come from; None without a keyboard."""
    if not sys.stdin.isatty():
        yield None
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield fd
    finally:
        with contextlib.suppress(termios.error):  # the window is closed
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """A pipe that gets the numbers of signals, so that waiting ends; SIGTERM ends the command."""
    woken, waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    handlers = {**dict.fromkeys(_BY_SIGNAL, _noticed), signal.SIGTERM: _ended}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    wakeup = signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(woken)
        os.close(waking)


def _noticed(_number: int, _frame: FrameType | None) -> None:
    """Nothing to do: its number is in the pipe."""


def _ended(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)  # as a shell reports it
