"""Processes, as the kernel tells everybody about them in ``/proc``.

A process is known by its id and the moment it started: ids come again. What the kernel does not
tell this user (``hidepid``, or it has ended) is None. What the agent needs of it, too, is in
:mod:`partage.fence.processes`.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from partage.fence import processes as kernel

_PROC = Path("/proc")
_LONGEST = 4096  # characters of a command
_DEEPEST = 64  # generations

stat = kernel.stat  # of a process that is there


@functools.cache
def boot_id() -> str:
    """Of this run of the kernel."""
    return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()


def lives(pid: int, started_ticks: int) -> bool:
    """Whether it is still the same process, and has not ended; a hidden one may be."""
    found = stat(pid)
    if found is None:
        return hidden(pid)
    return found.started_ticks == started_ticks and not found.ended


def hidden(pid: int) -> bool:
    """Whether a process is there that the kernel shows to its own user only (``hidepid``)."""
    if stat(pid) is not None:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        pass  # there is none
    return False


def own_ticks() -> int:
    """When this process started."""
    found = stat(os.getpid())
    return found.started_ticks if found else 0


def stopped(pid: int) -> bool:
    """Whether somebody has stopped it, by Ctrl-Z or with a debugger."""
    found = stat(pid)
    return found is not None and found.state in ("T", "t")


def ancestors(pid: int) -> list[int]:
    """The process, its parent, and so on."""
    return [each for each, _ in lineage(pid)]


def lineage(pid: int) -> list[tuple[int, int | None]]:
    """The same, each with the moment it started, where the kernel tells."""
    line: list[tuple[int, int | None]] = []
    while pid > 0 and len(line) < _DEEPEST:
        found = stat(pid)
        line.append((pid, found.started_ticks if found else None))
        pid = found.parent if found else 0
    return line


def command(pid: int) -> str | None:
    """With its arguments, on one line."""
    try:
        with (_PROC / str(pid) / "cmdline").open("rb") as file:
            text = file.read(_LONGEST)
    except OSError:
        return None
    return text.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace") or None


def owner(pid: int) -> int | None:
    """The user it runs as."""
    try:
        return (_PROC / str(pid)).stat().st_uid
    except OSError:
        return None
