"""The program that ``partage demo`` starts: a CUDA client that works, and takes orders.

It is copied under other names (``train.py``) and run as a file, so it imports nothing of Partage,
and knows nothing about shares: it gets what any program gets. Orders come on standard input, one on
each line, and each is answered by a line of JSON. It ends when standard input does, so that it is
not left behind, whatever becomes of the demo.
"""

from __future__ import annotations

import json
import os
import select
import sys

from cuda.bindings import driver as cuda

# For every card that is still supported; the driver translates it for the one it finds.
_KERNEL = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry work() { ret; }
"""
_AT_ONCE = 5  # kernels between two looks at the orders
_BLOCKS, _THREADS = 864, 128
_STDIN = 0


def main() -> None:
    """Work until told to end."""
    _call("cuInit", 0)
    device = _call("cuDeviceGet", 0)
    _call("cuCtxSetCurrent", _call("cuDevicePrimaryCtxRetain", device))
    total_bytes = cuda.cuMemGetInfo()[2]
    _call("cuMemAlloc", total_bytes // 4)
    work = _call("cuModuleGetFunction", _call("cuModuleLoadData", _KERNEL), b"work")
    kernels = _worked(work)
    _answer(pid=os.getpid(), total_bytes=total_bytes)
    while (order := _order()) is not None:
        if order[:1] == ["count"]:
            _answer(kernels=kernels)
        elif order[:1] == ["allocate"]:
            _answer(code=cuda.cuMemAlloc(int(order[1]))[0].name)
        kernels += _worked(work)


def _worked(work: object) -> int:
    """Run some kernels to their end; how many."""
    for _ in range(_AT_ONCE):
        _call("cuLaunchKernel", work, _BLOCKS, 1, 1, _THREADS, 1, 1, 0, 0, 0, 0)
    _call("cuCtxSynchronize")
    return _AT_ONCE


def _order() -> list[str] | None:
    """The words of the next order, none if there is no new one; None: it is time to end."""
    ready, _, _ = select.select([_STDIN], [], [], 0)
    if not ready:
        return []
    # The demo waits for each answer, so there is never more than one line.
    return os.read(_STDIN, 4096).decode().split() or None


def _answer(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _call(name: str, *arguments: object) -> object:
    """One call of the driver; an error of it ends the program."""
    code, *values = getattr(cuda, name)(*arguments)
    if int(code):
        sys.exit(f"{name}: {code.name}")
    return values[0] if values else None


if __name__ == "__main__":
    main()
