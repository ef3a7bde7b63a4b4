"""Become another program that the kernel kills when the process that started it is gone.

Run as a script: ``leash.py PARENT PROGRAM [ARGUMENT...]``. The kernel keeps the request across the
exec, so the program needs to know nothing about it, and it holds even if the parent is killed with
-9. It is a program of its own because Python may not run code between fork and exec in a process
that has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def main(parent: int, command: list[str]) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"leash: prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before we asked, so no signal would ever come
        sys.exit("leash: the parent is gone")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
