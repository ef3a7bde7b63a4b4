"""Hints for what is written after ``partage run --`` and cannot be started as it is.

The command becomes the program without a shell in between. So what a shell would understand
(``FOO=1 python x.py``) and what nothing but a shell would run (a script without ``#!``) is refused
before anybody waits for a card, with the line that works.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from partage.local.run import program_start

_ASSIGNMENT = r"[A-Za-z_][A-Za-z0-9_]*=.*"  # not compiled: few write one
_INTERPRETERS = {".py": "python", ".sh": "sh", ".bash": "bash", ".pl": "perl", ".rb": "ruby"}
_SHELL = "sh"
_LOOKED_AT = 256  # bytes; a program of the machine has a zero among them


def check(command: Sequence[str], path: str | None) -> None:
    """Refuse what will not start, if there is something better to say than that."""
    program = command[0]
    executable = shutil.which(program, path=path)
    if executable is None:
        _check_assignment(command)
        _check_file(command)
    elif _is_text(Path(executable)):
        raise program_start.CannotStart(
            f"{program} is a script without a #! line",
            instead=f"write {_line(_interpreted(executable, command))}",
            exit_code=program_start.NOT_EXECUTABLE,
        )


def _check_assignment(command: Sequence[str]) -> None:
    program = command[0]
    if re.fullmatch(_ASSIGNMENT, program, re.DOTALL):
        raise program_start.CannotStart(
            f"{program} sets a variable, and no shell reads it here",
            instead=f"write {_line(('env', *command))}",
            exit_code=program_start.NOT_FOUND,
        )


def _check_file(command: Sequence[str]) -> None:
    """A file that is there, in this folder or where its path says."""
    program = command[0]
    file = Path(program)
    if not program or not file.is_file():
        return
    if "/" not in program and os.access(file, os.X_OK) and not _is_text(file):
        words = (f"./{program}", *command[1:])
    elif file.suffix in _INTERPRETERS:
        words = _interpreted(program, command)
    else:
        return
    problem = "cannot be executed" if "/" in program else "is in this folder, but not in the PATH"
    code = program_start.NOT_EXECUTABLE if "/" in program else program_start.NOT_FOUND
    raise program_start.CannotStart(
        f"{program} {problem}", instead=f"write {_line(words)}", exit_code=code
    )


def _is_text(file: Path) -> bool:
    """Whether the kernel could not start it: neither a binary, nor a script with ``#!``."""
    if not file.is_file():
        return False  # a pipe, which nobody may write to
    with contextlib.suppress(OSError), file.open("rb") as opened:
        begin = opened.read(_LOOKED_AT)
        return not begin.startswith(b"#!") and b"\0" not in begin
    return False  # it may be executed and not read: let the kernel decide


def _interpreted(file: str, command: Sequence[str]) -> tuple[str, ...]:
    return _INTERPRETERS.get(Path(file).suffix, _SHELL), file, *command[1:]


def _line(command: Sequence[str]) -> str:
    return f"`{shlex.join(command)}`"
