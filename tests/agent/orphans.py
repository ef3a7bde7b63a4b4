"""A process whose parent has ended: it is nobody's child that a test could be taken for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

_PARENT = "import subprocess as s; print(s.Popen(['sleep', '600'], stdout=s.DEVNULL).pid)"


@contextlib.contextmanager
def sleeping() -> Iterator[int]:
    """Its process id."""
    parent = subprocess.run([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, check=True)
    pid = int(parent.stdout)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
