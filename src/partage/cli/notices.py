"""Notices: lines on standard error, beside what a command prints.

A command goes on if nobody can read them: a full disk behind stderr is not its failure.
"""

from __future__ import annotations

import contextlib
from typing import TextIO

import click


def show(line: str) -> None:
    """Print a line as it is."""
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def note(text: str) -> None:
    """Print what a user should know, and may ignore."""
    show(f"partage: {text}")


class Progress:
    """What a command is doing, in one line of a terminal; elsewhere nothing is shown."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = 0  # characters

    def show(self, text: str) -> None:
        """Put a text in the place of the one before."""
        with contextlib.suppress(OSError):
            if self._stream.isatty():
                self._stream.write(f"\r{text.ljust(self._shown)}")
                self._stream.flush()
                self._shown = len(text)

    def clear(self) -> None:
        """Leave the line empty."""
        if self._shown:
            self.show("")
            with contextlib.suppress(OSError):
                self._stream.write("\r")
                self._stream.flush()
