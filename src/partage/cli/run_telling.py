"""Telling a person who waits where he stands: on a terminal in one place, else in a line each time.

On standard error, as standard output is the program's. The same few lines are written over until
the program starts, and are gone then.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from typing import TextIO

from partage.cli import tables
from partage.core import demands
from partage.local import granting, places, reasons, running

_MOST_HOLDERS = 3


def telling(out: TextIO) -> running.Telling:
    """Until the program starts, or nothing more is to be waited for."""
    teller = _Live(out) if out.isatty() else _Lines(out)
    return running.Telling(teller.show, out.isatty(), teller.clear)


def lines(outcome: granting.Outcome, now_s: float) -> list[str]:
    """Where one stands: the place, what it waits for, and who has that."""
    entry, place = outcome.entry, outcome.waiting.place if outcome.waiting else 1
    asked = demands.described(entry.demand.containers[0].demand)
    since = tables.age(now_s - entry.asked_at)
    found = [
        f"partage: {entry.name} waits for {asked} ({since}): place {place} of {outcome.queue}",
        f"  {reasons.told(outcome.waiting)}",
    ]
    return [*found, *_held_by(outcome, now_s)]


def _held_by(outcome: granting.Outcome, now_s: float) -> list[str]:
    """Who has the cards that are short, and which processes that are nobody's program."""
    names = [
        f"{each.name} ({places.user_name(each.uid)}, {tables.age(now_s - each.since)})"
        for each in outcome.holders
    ]
    names += [f"process {pid} (not started by partage)" for pid in outcome.foreign]
    more = len(names) - _MOST_HOLDERS
    rest = f" and {more} more" if more > 0 else ""
    return [f"  held by {', '.join(names[:_MOST_HOLDERS])}{rest}"] if names else []


class _Lines:
    """For a log: one line when one comes, and whenever the place changes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._place = 0

    def show(self, outcome: granting.Outcome) -> None:
        place = outcome.waiting.place if outcome.waiting else 1
        if place != self._place:
            self._place = place
            text = "; ".join(line.strip() for line in lines(outcome, time.time()))
            _write(self._out, tables.printable(text) + "\n")

    def clear(self) -> None:
        """What was said stays."""


class _Live:
    """For a terminal: the same lines again and again."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._behind = _Lines(out)
        self._drawn = 0

    def show(self, outcome: granting.Outcome) -> None:
        if not _in_front(self._out):
            self._drawn = 0  # what is on the screen now is somebody else's
            self._behind.show(outcome)
            return
        width = max(20, shutil.get_terminal_size().columns - 1)
        shown = [tables.printable(line)[:width] for line in lines(outcome, time.time())]
        shown.append("  Ctrl-C leaves the queue")
        self.clear()
        _write(self._out, "".join(f"{line}\n" for line in shown))
        self._drawn = len(shown)

    def clear(self) -> None:
        """Nothing of it stays."""
        if self._drawn and _in_front(self._out):
            _write(self._out, f"\x1b[{self._drawn}F\x1b[J")
        self._drawn = 0


def _in_front(out: TextIO) -> bool:
    """Whether the terminal is ours: a job in the background must not draw over a shell."""
    try:
        return os.tcgetpgrp(out.fileno()) == os.getpgrp()
    except OSError:
        return True  # no terminal that controls us, so no shell behind it


def _write(out: TextIO, text: str) -> None:
    """Nobody waits in vain because whoever read this has gone."""
    with contextlib.suppress(OSError):
        out.write(text)
        out.flush()
