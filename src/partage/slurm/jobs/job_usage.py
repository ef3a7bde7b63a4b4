"""What jobs used, kept after they ended: a log of one line for each, bounded, written by root.

Slurm has a place for it only where its accounting runs; this one is on every node. What a job says
of itself it wrote into its own region: it can lie about its use, and harm nobody by that.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

FOLDER = Path("/var/lib/partage/slurm")
_NAME = "usage.jsonl"
_OLDER = "usage.jsonl.1"
_MOST_BYTES = 8 << 20  # of one of the two files
_LONGEST = 4096  # bytes of a line


class CardUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a job did with a card, over all its processes on this node."""

    uuid: str
    quota_bytes: int | None
    peak_bytes: int
    refused: int  # allocations, because of the quota
    busy_ns: int  # card time
    throttled_ns: int  # time that its work waited
    launches: int


class JobUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a job used on a node until it ended."""

    job: int
    uid: int
    node: str
    ended_s: int  # seconds since 1970
    cards: tuple[CardUse, ...] = ()
    problem: str = ""  # why nothing can be told of its cards


def append(folder: Path, use: JobUse) -> None:
    """Add a job; of two who do it at once, both are there afterwards."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    line = msgspec.json.encode(use)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / _NAME
        if path.exists() and path.stat().st_size > _MOST_BYTES:
            path.replace(folder / _OLDER)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            _write(descriptor, _break(descriptor) + line + b"\n")
        finally:
            os.close(descriptor)


def of_job(folder: Path, job: int) -> list[JobUse]:
    """All that is known of a job; several if it was requeued. A damaged line is passed over."""
    return [use for use in _everything(folder) if use.job == job]


def _everything(folder: Path) -> Iterator[JobUse]:
    for name in (_OLDER, _NAME):
        try:
            with (folder / name).open("rb") as file:
                content = file.read(2 * _MOST_BYTES)
        except FileNotFoundError:
            continue
        for line in content.splitlines():
            try:
                yield msgspec.json.decode(line[:_LONGEST], type=JobUse)
            except msgspec.DecodeError:
                continue


def _write(descriptor: int, line: bytes) -> None:
    """All of it: a disk that becomes full takes a part, and says nothing."""
    if os.write(descriptor, line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _break(descriptor: int) -> bytes:
    """A line end, if one who was killed wrote half a line."""
    size = os.fstat(descriptor).st_size
    return b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
