"""Progress of what takes minutes: on a terminal a line that changes, elsewhere a line now and then.

The first build of the programs takes long enough for a person, or a log reader, to think that it
hangs.
"""

from __future__ import annotations

import sys
import time
from typing import TextIO

_PLAIN_EVERY_SECONDS = 10.0


class Progress:
    """What is being done, for how long, and how far it is."""

    def __init__(self, subject: str, stream: TextIO | None = None) -> None:
        # Looked up now and not once for all: pytest puts another stream in its place.
        self._stream = stream or sys.stderr
        self._subject = subject
        self._began = time.monotonic()
        self._last_plain = -_PLAIN_EVERY_SECONDS
        self._rewriting = self._stream.isatty()
        self._unfinished = False

    def note(self, text: str) -> None:
        """Say something that stays."""
        self._end_line()
        self._write(f"{self._subject}: {text}\n")

    def update(self, text: str) -> None:
        """Say how far it is; elsewhere than on a terminal, only every ten seconds."""
        elapsed = time.monotonic() - self._began
        line = f"{self._subject}: {text}, {_minutes(elapsed)}"
        if self._rewriting:
            self._write(f"\r\033[K{line}")
            self._unfinished = True
        elif elapsed - self._last_plain >= _PLAIN_EVERY_SECONDS:
            self._last_plain = elapsed
            self._write(f"{line}\n")

    def done(self, text: str) -> None:
        """Say how it ended, and how long it took."""
        self.note(f"{text} in {_minutes(time.monotonic() - self._began)}")

    def _end_line(self) -> None:
        if self._unfinished:
            self._write("\r\033[K")
            self._unfinished = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
