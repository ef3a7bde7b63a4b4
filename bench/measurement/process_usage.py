"""Process usage: what a process has used so far, by the kernel's account."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM = 11, 12  # fields of /proc/PID/stat after the name


def spent_s(pid: int) -> float:
    """Processor time of all threads, user's and system's."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS_PER_S


def spent_by_name_s(pids: Mapping[str, int]) -> dict[str, float]:
    """The same of several processes, by their names."""
    return {name: spent_s(pid) for name, pid in pids.items()}


def memory_mb(pid: int, field: str = "VmRSS") -> float:
    """Resident memory now, or at its highest with ``VmHWM``; MB of a million bytes."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
    return kib * 1024 / 1e6
