"""Checks of what the kernel and the shell of this user allow."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from partage.fence import processes as kernel
from partage.local.doctor import findings
from partage.local.queue import wakeup
from partage.local.run import program_fence


def waiting(context: findings.Context) -> Iterator[findings.Finding]:
    """Whether the kernel wakes programs that wait."""
    folder = context.state.leases if context.state else Path("/")
    with wakeup.watching(folder) as wakeups:
        by_kernel = wakeups.sent_by_kernel
    if by_kernel:
        yield findings.ok("waiting", "the kernel wakes programs that wait (inotify)")
    else:
        yield findings.note(
            "waiting",
            "this user has no inotify instances left: programs that wait look every few seconds",
            "`sudo sysctl fs.inotify.max_user_instances=1024`",
        )


def processes(_context: findings.Context) -> Iterator[findings.Finding]:
    """Whether processes of others are seen, by the example of the first of all."""
    if kernel.stat(1) is not None:
        yield findings.ok("processes", "the processes of all users are seen")
    else:
        yield findings.note(
            "processes",
            "processes of others are hidden (/proc has hidepid): their commands are N/A",
            "Partage does not need them; root can `mount -o remount,hidepid=0 /proc`",
        )


def command(_context: findings.Context) -> Iterator[findings.Finding]:
    """Which ``partage`` a shell finds."""
    program, this = shutil.which("partage"), Path(sys.argv[0])
    if program is None:
        yield findings.note(
            "command", "`partage` is not in the PATH", f"add {this.absolute().parent} to it"
        )
    elif this.name == "partage" and not Path(program).samefile(this):
        yield findings.note(
            "command",
            f"a shell finds {program}, and this is {this}",
            "put one of them first in PATH",
        )
    else:
        yield findings.ok("command", program)


def share(context: findings.Context) -> Iterator[findings.Finding]:
    """Whether this is itself a program with a share."""
    if program_fence.inside(context.environ):
        name = context.environ.get("PARTAGE_NAME", "N/A")
        yield findings.note(
            "share",
            f"this shell is part of {name}, which has a share (pid {os.getppid()})",
            "`partage run` does not work in here: start programs as they are",
        )
    else:
        yield findings.ok("share", "this shell is not part of a program with a share")
