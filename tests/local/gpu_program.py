"""A CUDA program for tests, with nothing but the driver's library: run as a file.

``hold MIB``: allocate, say so, wait for ever. ``try MIB``: say whether it could be allocated.
``total``: say how much memory the card seems to have. ``step``: do what standard input says, line
by line (``try MIB``, ``free``, ``total``), and answer each. ``daemon MIB FILE``: close all files,
leave the parent, allocate, write the process id into the file, wait for ever.
"""

import ctypes
import os
import pathlib
import signal
import sys

MIB = 1 << 20


class Card:
    """The first card, with a context on it."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._pointers: list[ctypes.c_uint64] = []
        context = ctypes.c_void_p()
        assert self._cuda.cuInit(0) == 0
        assert self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert self._cuda.cuCtxSetCurrent(context) == 0

    def allocate(self, mib: int) -> int:
        """CUDA's answer: 0, or 2 for out of memory."""
        pointer = ctypes.c_uint64()
        code = int(self._cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib * MIB)))
        if code == 0:
            self._pointers.append(pointer)
        return code

    def free(self) -> None:
        """What was allocated last."""
        assert self._cuda.cuMemFree_v2(self._pointers.pop()) == 0

    def total_mib(self) -> int:
        """As the driver tells it to this process."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert self._cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        return total.value // MIB


def main(what: str, *arguments: str) -> None:
    """Do what the arguments say."""
    if what == "daemon":
        leave()
    card = Card()
    if what == "step":
        for line in sys.stdin:
            step(card, *line.split())
        return
    if what in ("try", "total"):
        step(card, what, *arguments)
        return
    code = card.allocate(int(arguments[0])) if int(arguments[0]) else 0
    if what == "daemon":
        pathlib.Path(arguments[1]).write_text(f"{os.getpid()}\n" * (code == 0))
    else:
        say(f"holds {arguments[0]} MiB, {code}")
    if code == 0:
        signal.pause()


def step(card: Card, what: str, mib: str = "0") -> None:
    """One step, and its answer."""
    if what == "try":
        code = card.allocate(int(mib))
        say("got it" if code == 0 else f"error {code}")
    elif what == "free":
        card.free()
        say("freed")
    else:
        say(str(card.total_mib()))


def leave() -> None:
    """Become a daemon, as those do that were written long ago."""
    os.closerange(0, 1 << 16)
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)


def say(text: str) -> None:
    """To the reader of the output, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
