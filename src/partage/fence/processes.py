"""Processes as the kernel tells about them, and how one is ended without ending another.

A process is known by its id and the moment it started: ids come again. What the kernel does not
tell (``hidepid``, or the process has ended) is None. Of nobody more is read than everybody may
read: its ``stat``, ``status`` and ``cgroup``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_NAMESPACES = b"\nNSpid:"


class Stat(msgspec.Struct, frozen=True):
    """What matters of ``/proc/PID/stat``."""

    state: str
    parent: int
    started_ticks: int

    @property
    def ended(self) -> bool:
        """A process that its parent has not looked at yet; it has no files and no memory."""
        return self.state in ("Z", "X", "x")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A living process, as far as it matters whose it is."""

    pid: int
    started_ticks: int
    inner_pid: int  # in its own pid namespace
    cgroups: tuple[str, ...]  # its paths, one of each hierarchy


def stat(pid: int) -> Stat | None:
    """A process that is there."""
    text = _read(pid, "stat")
    if not text:
        return None
    # The name of the program is in parentheses, and may have any characters in it.
    fields = text[text.rindex(b")") + 2 :].split()
    return Stat(fields[0].decode(), int(fields[1]), int(fields[19]))


def facts(pid: int) -> Facts | None:
    """A process that lives."""
    found = stat(pid)
    status, cgroup = _read(pid, "status"), _read(pid, "cgroup")
    if found is None or found.ended or status is None or cgroup is None:
        return None
    ids = status.partition(_NAMESPACES)[2].partition(b"\n")[0].split()
    lines = cgroup.decode(errors="replace").splitlines()
    return Facts(
        pid=pid,
        started_ticks=found.started_ticks,
        inner_pid=int(ids[-1]) if ids else pid,
        cgroups=tuple(dict.fromkeys(line.split(":", 2)[-1] for line in lines)),
    )


def end(pid: int, started_ticks: int, whose: Callable[[Facts], bool]) -> str:
    """End a process at once, if it is still the one that is meant; why it was not, or nothing.

    The descriptor stands for one process, whatever becomes of its id. What is read of that id
    afterwards is about this process, or about one that came when this one had ended: then the
    signal reaches nobody.
    """
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return "it has ended by itself"
    except OSError as error:
        return f"it cannot be reached ({error.strerror})"
    try:
        known = facts(pid)
        if known is None or known.started_ticks != started_ticks or not whose(known):
            return "it has ended by itself, and another process has its id"
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        return "it has ended by itself"
    except PermissionError:
        return "this process may not end it: it needs to be root with CAP_KILL, or the same user"
    finally:
        os.close(fd)
    return ""


def _read(pid: int, name: str) -> bytes | None:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return None
