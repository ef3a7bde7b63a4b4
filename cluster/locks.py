"""Locks: one process at a time, across the machine.

The kernel gives a lock back when its holder ends in whatever way, so none is ever left over.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, *, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a lock; ``on_wait`` is called once if somebody else has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
