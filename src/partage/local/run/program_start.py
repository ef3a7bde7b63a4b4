"""The start of a program: this process becomes it.

Nothing of Partage stays but the lease's descriptor. What Python changed about the process is put
back first: it ignores SIGPIPE, and may have set LC_CTYPE. The program finds signals, standard input
and terminal as its user left them, and the shell gets the program's own exit code.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from partage.core import errors
from partage.local.state import leases

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells have it
_ENVIRON = Path("/proc/self/environ")


class CannotStart(errors.PartageError):
    """A program that cannot be started; nothing stays granted."""

    code = "cannot-start"

    def __init__(self, what: str, *, instead: str, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(what, instead=instead)


def check(program: str, path: str | None) -> str:
    """Where a program is; refuses one that is not there, before anything is granted."""
    located = shutil.which(program, path=path)
    if located:
        return located
    if "/" in program and Path(program).is_dir():
        raise CannotStart(
            f"{program} is a folder", instead="name a program in it", exit_code=NOT_EXECUTABLE
        )
    if "/" in program and Path(program).exists():
        raise CannotStart(
            f"{program} cannot be executed",
            instead=f"is it a program? `chmod +x {shlex.quote(program)}`, or name its interpreter",
            exit_code=NOT_EXECUTABLE,
        )
    raise CannotStart(
        f"there is no program {program or repr(program)}",
        instead="check its name",
        exit_code=NOT_FOUND,
    )


def become(command: Sequence[str], lease: leases.Lease, share: Mapping[str, str]) -> NoReturn:
    """Become the program; returns only by an error."""
    environment = _with_locale({**os.environ, **share})
    lease.inherit()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), environment)
    except OSError as error:
        raise CannotStart(
            f"{command[0]} cannot be started: {error.strerror}",
            instead="check the file; its share is free again",
            exit_code=NOT_EXECUTABLE,
        ) from error


def _with_locale(environment: dict[str, str]) -> dict[str, str]:
    """LC_CTYPE as it was: Python sets it where there is no locale, or C's (PEP 538)."""
    with contextlib.suppress(OSError):
        given = dict(
            variable.partition(b"=")[::2] for variable in _ENVIRON.read_bytes().split(b"\0")
        )
        before = given.get(b"LC_CTYPE")
        plain = {name: text for name, text in environment.items() if name != "LC_CTYPE"}
        return plain if before is None else plain | {"LC_CTYPE": os.fsdecode(before)}
    return environment
