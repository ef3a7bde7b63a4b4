"""Entry: how a command is run and how it ends, for every program that Partage installs.

A user's mistake is one line on stderr and exit code 2, in the same words wherever it was found; a
traceback is a bug of ours, and an interruption is not an error. The exit code says what
became of the command even where nobody can read why, since stderr is full.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn, TextIO

import click

from partage.cli import notices
from partage.core import errors

_FAILED = 1
_INTERRUPTED = 130  # as a shell reports an interrupt


def run(
    command: click.Command, name: str, *, tell: Callable[[errors.PartageError], int] | None = None
) -> NoReturn:
    """Run a command and exit; ``tell`` prints an error in another way than usual."""
    _open_closed()
    try:
        code = _code(command, name, tell or _printer(name))
        problem = _unwritten(sys.stdout)
    except OSError as error:
        code = _FAILED
        problem = _unwritten(sys.stdout) or _rejected(sys.stdout, error)
        if not problem:
            notices.show(f"{name}: {_file_problem(error)}")
    if problem:
        code = _FAILED
        _discard(sys.stdout)
        if not isinstance(problem, BrokenPipeError):  # our reader left, as `head` does
            notices.show(f"{name}: {_output_problem(problem)}")
    if _unwritten(sys.stderr):
        _discard(sys.stderr)
    sys.exit(code)


def _open_closed() -> None:
    """Discard what goes to a standard output or error that we were started without."""
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
        path = error.ctx.command_path if error.ctx else name
        notices.show(f"{name}: {_mistake(error, name)} See '{path} --help'.")
        return error.exit_code
    except click.ClickException as error:
        notices.show(f"{name}: {error.format_message()}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    return code if isinstance(code, int) else 0


def _mistake(error: click.UsageError, name: str) -> str:
    """One sentence, whatever click makes of it."""
    if isinstance(error, click.NoSuchOption) and error.option_name == "--simulate":
        return f"--simulate comes before the command: {name} --simulate 2x16GiB run ..."
    text = " ".join(error.format_message().split())
    return text if text.endswith((".", "?")) else f"{text}."


def _printer(name: str) -> Callable[[errors.PartageError], int]:
    def tell(error: errors.PartageError) -> int:
        notices.show(f"{name}: {error}")
        return error.exit_code

    return tell


def _file_problem(error: OSError) -> str:
    """With the file, where Python knows it."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _output_problem(problem: OSError) -> str:
    return (
        f"cannot write to standard output: {problem.strerror or problem}; "
        "make room there, or send the output elsewhere, then run the command again"
    )


def _unwritten(stream: TextIO) -> OSError | None:
    """Why a stream does not take what was written to it; None if it took all of it."""
    try:
        stream.flush()
    except OSError as error:
        return error
    return None


def _rejected(stream: TextIO, error: OSError) -> OSError | None:
    """The error, if it is one of this stream; one without a buffer keeps nothing to flush."""
    if error.filename is not None:
        return None
    try:
        os.write(stream.fileno(), b"\n")
    except OSError as problem:
        return problem
    return None


def _discard(stream: TextIO) -> None:
    """Python would complain once more when it closes the stream, and change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
