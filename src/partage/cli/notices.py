"""Notices: lines on standard error, beside what a command prints.

A command goes on if nobody can read them: a full disk behind stderr is not its failure.
"""

from __future__ import annotations

import contextlib

import click


def show(line: str) -> None:
    """Print a line as it is."""
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def note(text: str) -> None:
    """Print what a user should know, and may ignore."""
    show(f"partage: {text}")
