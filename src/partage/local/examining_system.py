"""Examinations of what the kernel and the shell of this user allow."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from partage.local import bells, fencing, findings
from partage.local import processes as kernel


def waiting(around: findings.Around) -> Iterator[findings.Finding]:
    """Whether those who wait are woken by the kernel."""
    folder = around.place.leases if around.place else Path("/")
    with bells.hung(folder) as bell:
        rings = bell.rings
    if rings:
        yield findings.ok("waiting", "the kernel wakes those who wait (inotify)")
    else:
        yield findings.note(
            "waiting",
            "no more inotify instances for this user: who waits looks every few seconds instead",
            "`sudo sysctl fs.inotify.max_user_instances=1024`",
        )


def processes(_around: findings.Around) -> Iterator[findings.Finding]:
    """Whether processes of others are seen, by the example of the first of all."""
    if kernel.stat(1) is not None:
        yield findings.ok("processes", "those of all users are seen")
    else:
        yield findings.note(
            "processes",
            "those of others are hidden (/proc is mounted with hidepid): their commands are N/A",
            "nothing needs them; root can `mount -o remount,hidepid=0 /proc`",
        )


def command(_around: findings.Around) -> Iterator[findings.Finding]:
    """Which ``partage`` a shell finds."""
    found, this = shutil.which("partage"), Path(sys.argv[0])
    if found is None:
        yield findings.note(
            "command", "`partage` is not in the PATH", f"add {this.absolute().parent} to it"
        )
    elif this.name == "partage" and not Path(found).samefile(this):
        yield findings.note(
            "command", f"a shell finds {found}, and this is {this}", "put one of them first in PATH"
        )
    else:
        yield findings.ok("command", found)


def share(around: findings.Around) -> Iterator[findings.Finding]:
    """Whether this is itself a program with a share."""
    if fencing.inside(around.environ):
        name = around.environ.get("PARTAGE_NAME", "N/A")
        yield findings.note(
            "share",
            f"this shell is part of {name}, which has a share (pid {os.getppid()})",
            "`partage run` does not work in here: start programs as they are",
        )
    else:
        yield findings.ok("share", "this shell is not part of a program with a share")
