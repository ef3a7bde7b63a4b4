"""Entry: how a command is run and how it ends, for every program that Partage installs.

A user's mistake is one line on stderr and exit code 2, in the same words wherever it was found; a
traceback is a bug of ours, and whoever interrupts a command means it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

import click

from partage.core import errors


def run(
    command: click.Command, name: str, *, tell: Callable[[errors.PartageError], int] | None = None
) -> NoReturn:
    """Run a command and exit; ``tell`` says what went wrong in another way than usual."""
    _open_closed()
    try:
        code = _code(command, name, tell or _told(name))
        sys.stdout.flush()
    except OSError as error:
        # The disk is full, or whoever read our output has gone, as `head` does. Python must not
        # complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            click.echo(f"{name}: {error.strerror or error}", err=True)
        code = 1
    sys.exit(code)


def _open_closed() -> None:
    """Whoever starts us without standard output or error does not want to read it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _code(command: click.Command, name: str, tell: Callable[[errors.PartageError], int]) -> int:
    try:
        code = command(prog_name=name, standalone_mode=False)
    except errors.PartageError as error:
        return tell(error)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.UsageError as error:
        asked = error.ctx.command_path if error.ctx else name
        click.echo(f"{name}: {_mistake(error, name)} See '{asked} --help'.", err=True)
        return error.exit_code
    except click.ClickException as error:
        click.echo(f"{name}: {error.format_message()}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130  # as a shell reports an interrupt
    return code if isinstance(code, int) else 0


def _mistake(error: click.UsageError, name: str) -> str:
    """One sentence, whatever click makes of it."""
    if isinstance(error, click.NoSuchOption) and error.option_name == "--simulate":
        return f"--simulate comes before the command: {name} --simulate 2x16GiB run ..."
    text = " ".join(error.format_message().split())
    return text if text.endswith((".", "?")) else f"{text}."


def _told(name: str) -> Callable[[errors.PartageError], int]:
    def tell(error: errors.PartageError) -> int:
        click.echo(f"{name}: {error}", err=True)
        return error.exit_code

    return tell
