"""Parent death: become another program, which the kernel kills when its parent is gone.

Run as a script: ``parent_death.py PARENT PROGRAM [ARGUMENT...]``. The kernel keeps the request
across the exec, so the program needs to know nothing about it, and it holds even if the parent is
killed with -9. It is a program of its own because Python may not run code between fork and exec in
a process that has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def main(parent: int, command: list[str]) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"parent_death: prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before we asked, so no signal would ever come
        sys.exit("parent_death: the parent is gone")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
