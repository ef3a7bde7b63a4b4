"""What a user sees while their program waits: on a terminal a few lines, else a line each time.

On standard error, as standard output is the program's. The same few lines are written over until
the program starts, and are gone then. The place in the queue and the time come first, since they
change; on a narrow terminal the name is shortened, and the rest goes on in the next line.
"""

from __future__ import annotations

import contextlib
import os
import textwrap
import time
from typing import TextIO

from partage.cli.display import tables
from partage.core import demands
from partage.local.queue import decision, wait_reasons
from partage.local.run import launch
from partage.local.state import location

_MOST_HOLDERS = 3
_SHORTEST_NAME = 16  # characters of a name that are shown on any terminal
_SMALLEST_WIDTH = 20
_USUAL = os.terminal_size((80, 24))
_GOES_ON = "..."


def telling(out: TextIO) -> launch.WaitDisplay:
    """The display of a wait, for a terminal or for a log."""
    live = out.isatty() and os.environ.get("TERM") != "dumb"
    teller = _Live(out) if live else _Lines(out)
    return launch.WaitDisplay(teller.show, live, teller.clear)


def lines(outcome: decision.Outcome, now_s: float, width: int | None = None) -> list[str]:
    """The place in the queue, what is waited for, and which programs have it; None is any width."""
    entry, place = outcome.entry, outcome.waiting.place if outcome.waiting else 1
    share = demands.described(entry.demand.containers[0].demand)
    where = f"partage: place {place} of {outcome.queue} ({tables.age(now_s - entry.asked_at)}): "
    what = f" waits for {share}"
    name = entry.name if width is None else shortened(entry.name, width - len(where + what))
    texts = [f"{where}{name}{what}", f"  {wait_reasons.reason(outcome.waiting)}"]
    return [tables.printable(line) for line in (*texts, *_held_by(outcome, now_s))]


def shortened(name: str, room: int) -> str:
    """A name without its middle, if there is no room: names differ mostly at their ends."""
    most = max(room, _SHORTEST_NAME)
    if len(name) <= most:
        return name
    end = (most - len(_GOES_ON)) // 2
    return f"{name[: most - len(_GOES_ON) - end]}{_GOES_ON}{name[-end:]}"


def fitted(texts: list[str], size: os.terminal_size) -> list[str]:
    """Lines as they fit on a terminal: what is too long goes on in the next, indented."""
    width = _width(size)
    rows = [
        row
        for line in texts
        for row in textwrap.wrap(line, width, subsequent_indent="    ", break_on_hyphens=False)
    ]
    most = max(size.lines - 1, 1)  # the cursor stands below them
    if len(rows) <= most:
        return rows
    return [*rows[: most - 1], rows[most - 1][: width - len(_GOES_ON)] + _GOES_ON]


def _width(size: os.terminal_size) -> int:
    """In the last column some terminals break a line already."""
    return max(_SMALLEST_WIDTH, size.columns - 1)


def _held_by(outcome: decision.Outcome, now_s: float) -> list[str]:
    """The programs and foreign processes that have the cards that are short."""
    names = [
        f"{entry.name} ({location.user_name(entry.uid)}, {tables.age(now_s - entry.since)})"
        for entry in outcome.holders
    ]
    names += [f"process {pid} (not started by partage)" for pid in outcome.foreign]
    more = len(names) - _MOST_HOLDERS
    rest = f" and {more} more" if more > 0 else ""
    return [f"  held by {', '.join(names[:_MOST_HOLDERS])}{rest}"] if names else []


class _Lines:
    """For a log: one line at first, and one whenever the place in the queue changes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._place = 0

    def show(self, outcome: decision.Outcome) -> None:
        place = outcome.waiting.place if outcome.waiting else 1
        if place != self._place:
            self._place = place
            text = "; ".join(line.strip() for line in lines(outcome, time.time()))
            _write(self._out, f"{text}\n")

    def clear(self) -> None:
        """The lines of a log stay."""


class _Live:
    """For a terminal: the same lines again and again."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._behind = _Lines(out)
        self._drawn = 0

    def show(self, outcome: decision.Outcome) -> None:
        if not _in_front(self._out):
            self._drawn = 0  # what is on the screen now was written by others
            self._behind.show(outcome)
            return
        size = _size(self._out)
        texts = lines(outcome, time.time(), _width(size))
        shown = fitted([*texts, "  Ctrl-C leaves the queue"], size)
        self.clear()
        _write(self._out, "".join(f"{line}\n" for line in shown))
        self._drawn = len(shown)

    def clear(self) -> None:
        """Remove the lines from the terminal."""
        if self._drawn and _in_front(self._out):
            _write(self._out, f"\x1b[{self._drawn}F\x1b[J")
        self._drawn = 0


def _size(out: TextIO) -> os.terminal_size:
    """Of the terminal that is written to, which standard output need not be."""
    try:
        size = os.get_terminal_size(out.fileno())
    except OSError:
        return _USUAL
    return size if size.columns and size.lines else _USUAL


def _in_front(out: TextIO) -> bool:
    """Whether the terminal is ours: a job in the background must not draw over a shell."""
    try:
        return os.tcgetpgrp(out.fileno()) == os.getpgrp()
    except OSError:
        return True  # no terminal that controls us, so no shell behind it


def _write(out: TextIO, text: str) -> None:
    """A reader that has gone does not end the wait."""
    with contextlib.suppress(OSError):
        out.write(text)
        out.flush()
