"""Disks of a test's own: full ones, and ones that nobody can write to."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

from tests import leaving_out


@contextlib.contextmanager
def small(point: pathlib.Path) -> Iterator[pathlib.Path]:
    """A small disk of its own."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        leaving_out.leave_out("a disk that is full", "only root mounts one")
    point.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", point],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        leaving_out.leave_out("a disk that is full", done.stderr.strip())
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", point], check=False)


def fill(path: pathlib.Path) -> None:
    """To the last byte, by one file."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


@contextlib.contextmanager
def read_only(folder: pathlib.Path) -> Iterator[None]:
    """For all who open anything there."""
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
