"""Processes as the kernel tells about them, and how one is ended without ending another.

A process is known by its id and the moment it started: ids come again. What the kernel does not
tell (``hidepid``, or the process has ended) is None. Of nobody more is read than everybody may
read: its owner, ``stat``, ``status``, ``cgroup`` and ``cmdline``.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_NAMESPACES = b"\nNSpid:"
_USERS = b"\nUid:"
_LONGEST = 4096  # characters of a command
_DEEPEST = 64  # generations
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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
    real_uid: int | None = None  # who started it; unlike its owner, the process cannot hide that


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
    process_stat = stat(pid)
    status, cgroup = _read(pid, "status"), _read(pid, "cgroup")
    if process_stat is None or process_stat.ended or status is None or cgroup is None:
        return None
    ids, users = _field(status, _NAMESPACES), _field(status, _USERS)
    lines = cgroup.decode(errors="replace").splitlines()
    return Facts(
        pid=pid,
        started_ticks=process_stat.started_ticks,
        inner_pid=int(ids[-1]) if ids else pid,
        cgroups=tuple(dict.fromkeys(line.split(":", 2)[-1] for line in lines)),
        real_uid=int(users[0]) if users else None,
    )


def lives(pid: int, started_ticks: int) -> bool:
    """Whether it is still the same process, and has not ended; a hidden one may be."""
    process_stat = stat(pid)
    if process_stat is None:
        return hidden(pid)
    return process_stat.started_ticks == started_ticks and not process_stat.ended


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


def stopped(pid: int) -> bool:
    """Whether somebody has stopped it, by Ctrl-Z or with a debugger."""
    process_stat = stat(pid)
    return process_stat is not None and process_stat.state in ("T", "t")


def ancestors(pid: int) -> list[int]:
    """The process, its parent, and so on."""
    return [process_id for process_id, _ in lineage(pid)]


def lineage(pid: int) -> list[tuple[int, int | None]]:
    """The same, each with the moment it started, where the kernel tells."""
    line: list[tuple[int, int | None]] = []
    while pid > 0 and len(line) < _DEEPEST:
        process_stat = stat(pid)
        line.append((pid, process_stat.started_ticks if process_stat else None))
        pid = process_stat.parent if process_stat else 0
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
    """The user it runs as; root, where the process does not let itself be inspected."""
    try:
        return (_PROC / str(pid)).stat().st_uid
    except OSError:
        return None


def since(pid: int) -> float:
    """When it was started, in seconds since 1970; now, if the kernel does not tell."""
    process_stat, now_s = stat(pid), time.time()
    if process_stat is None:
        return now_s
    lived_s = time.clock_gettime(time.CLOCK_BOOTTIME) - process_stat.started_ticks / _TICKS_PER_S
    return now_s - lived_s


def own_ticks() -> int:
    """When this process started."""
    process_stat = stat(os.getpid())
    return process_stat.started_ticks if process_stat else 0


@functools.cache
def boot_id() -> str:
    """Of this run of the kernel."""
    return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()


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
        process = facts(pid)
        if process is None or process.started_ticks != started_ticks:
            return "it has ended by itself, and another process has its id"
        if not whose(process):
            return "it is not proven to be the tenant's own"
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        return "it has ended by itself"
    except PermissionError:
        return "this process may not end it: it needs to be root with CAP_KILL, or the same user"
    finally:
        os.close(fd)
    return ""


def _field(status: bytes, name: bytes) -> list[bytes]:
    return status.partition(name)[2].partition(b"\n")[0].split()


def _read(pid: int, name: str) -> bytes | None:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return None
