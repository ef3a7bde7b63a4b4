"""Processes in namespaces of their own: programs that the kernel ends with the first of them.

:mod:`cluster.node.namespaces` makes and enters the namespaces; this starts it as a program.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from cluster import child_processes

COMMAND: list[str | Path] = [
    sys.executable,
    "-I",
    "-S",
    Path(__file__).with_name("namespaces.py"),
]


class Process(child_processes.Process):
    """A program in namespaces; the process that we know waits for it outside."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program: when it is gone, so is the one that waits for it."""
        pid = self.pid
        if pid is not None:
            os.kill(next(iter(child_processes.children(pid)), pid), number)


def first_pid(first: Process) -> int:
    """The pid of the first process inside; raises IndexError before there is one."""
    return child_processes.children(first.pid or 0)[0]


def has_mounts(first: Process, mounts: Path) -> bool:
    """Whether the last of the places in the file MOUNTS is covered."""
    place, cover = mounts.read_text().splitlines()[-1].split("\t")
    try:
        return Path(f"/proc/{first_pid(first)}/root{place}").samefile(cover)
    except (OSError, IndexError):
        return False
