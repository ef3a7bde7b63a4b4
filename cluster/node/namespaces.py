"""Namespaces and cgroup of a node: made, entered and removed.

Run as a script. ``namespaces.py make MOUNTS [GROUP...]`` makes cgroups, a namespace of processes
and one of mounts, and stays until its first process is killed. Then the kernel has ended every
process in there and their mounts are gone; it removes the cgroups and ends. ``namespaces.py enter
PID PROGRAM [ARGUMENT...]`` runs a program in there, and on the network of the first process, whose
pid it is. If the one that waits outside is killed, so is what runs inside. ``namespaces.py cover
MOUNTS PROGRAM [ARGUMENT...]`` becomes a program that alone, with all that it starts, sees more
places covered.

Each line of the file MOUNTS is a place to cover, and with what: two paths with a tab between. The
machine outside sees nothing of it. It is a program of its own, and needs nothing but the standard
library, because Python may not run code between fork and exec in a process that has threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from typing import NoReturn

# From linux/sched.h, linux/mount.h and linux/prctl.h.
_NEW_MOUNTS, _NEW_PIDS, _NEW_NETWORK = 0x00020000, 0x20000000, 0x40000000
_BIND, _RECURSIVE, _PRIVATE, _SHARED = 1 << 12, 1 << 14, 1 << 18, 1 << 20
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2

_REMOVING_SECONDS = 8.0  # the dead stay in their cgroup for a moment

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]


def make(mounts: str, groups: list[str]) -> None:
    """Make the namespaces and cgroups, and stay as long as the first process does."""
    _outlive_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("namespaces: asked to end"))
    try:
        for group in groups:
            _make_group(group)
        _check(_LIBC.unshare(_NEW_MOUNTS | _NEW_PIDS), "unshare")
        first = _forked()
        if not first:
            _be_first(mounts)
        signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
        os.waitpid(first, 0)  # returns when all the others have ended, too
    finally:
        _remove_groups(groups)


def enter(first: int, command: list[str]) -> NoReturn:
    """Run a program inside, and end as it does."""
    descriptor = os.pidfd_open(first)
    _check(_LIBC.setns(descriptor, _NEW_MOUNTS | _NEW_PIDS | _NEW_NETWORK), "setns")
    child = _forked()
    if not child:
        os.execv(command[0], command)
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)


def cover(mounts: str, command: list[str]) -> NoReturn:
    """Become a program whose view of the file system is the present one but for these places."""
    _check(_LIBC.unshare(_NEW_MOUNTS), "unshare")
    _mount("none", "/", _RECURSIVE | _PRIVATE)
    _cover(mounts)
    os.execv(command[0], command)


def _outlive_parent() -> None:
    """If the kernel is to kill us with our parent, let it tell us instead: we have to tidy up."""
    held = ctypes.c_int()
    _check(_LIBC.prctl(_PR_GET_PDEATHSIG, ctypes.byref(held)), "prctl")
    if held.value:
        _check(_LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM), "prctl")


def _forked() -> int:
    """The child's pid; 0 in the child, which the kernel kills when its parent is gone."""
    alive, died = os.pipe()
    child = os.fork()
    if child:
        os.close(alive)
        return child  # `died` stays open until we end
    os.close(died)
    _check(_LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    os.set_blocking(alive, False)
    with contextlib.suppress(BlockingIOError):  # nothing to read: the parent is there
        os.read(alive, 1)
        os._exit(1)  # it was gone before we asked, so no signal would ever come
    os.close(alive)
    return 0


def _be_first(mounts: str) -> NoReturn:
    """Inside: cover what is to be covered, then wait for those whose parents have ended."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _see_own_processes()
        _cover(mounts)
        _reap()
    except (OSError, ValueError, SystemExit) as error:
        print(error, file=sys.stderr, flush=True)
    finally:
        os._exit(1)  # not through what our parent does at its end


def _see_own_processes() -> None:
    _mount("none", "/", _RECURSIVE | _PRIVATE)  # nothing of this is seen outside
    _mount("none", "/", _RECURSIVE | _SHARED)  # but all of it by the containers, as on a real node
    _check(_LIBC.mount(b"proc", b"/proc", b"proc", 0, None), "mount /proc")


def _cover(mounts: str) -> None:
    with open(mounts) as lines:  # noqa: PTH123 (pathlib takes longer to import than all else here)
        for line in lines:
            place, cover = line.rstrip("\n").split("\t")
            _mount(cover, place, _BIND)


def _reap() -> NoReturn:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        signal.sigwait([signal.SIGCHLD])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _make_group(group: str) -> None:
    """A cgroup with every processor and all memory; in version 1 a new one has none."""
    os.makedirs(group, exist_ok=True)  # noqa: PTH103
    for setting in ("cpuset.cpus", "cpuset.mems"):
        with contextlib.suppress(FileNotFoundError):
            with open(f"{group}/../{setting}") as parent:  # noqa: PTH123
                value = parent.read()
            with open(f"{group}/{setting}", "w") as own:  # noqa: PTH123
                own.write(value)


def _remove_groups(groups: list[str]) -> None:
    deadline = time.monotonic() + _REMOVING_SECONDS
    while left := [group for group in groups if os.path.exists(group)]:  # noqa: PTH110
        if time.monotonic() > deadline:
            sys.exit(f"namespaces: these cgroups still have processes: {' '.join(left)}")
        for folder in (folder for group in left for folder, _, _ in os.walk(group, topdown=False)):
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106
        time.sleep(0.01)


def _mount(source: str, target: str, flags: int) -> None:
    result = _LIBC.mount(os.fsencode(source), os.fsencode(target), None, flags, None)
    _check(result, f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        sys.exit(f"namespaces: {what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3:])
    elif sys.argv[1] == "cover":
        cover(sys.argv[2], sys.argv[3:])
    else:
        enter(int(sys.argv[2]), sys.argv[3:])
