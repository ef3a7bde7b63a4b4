"""Ways to take linear memory, and memory for code."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint, c_uint32
from pathlib import Path

from tests.native.client import alloc, call, free, made
from tests.native.ways_table import Give, way


@way("cuMemAlloc, cuMemFree")
def _(size: int) -> Give:
    pointer = made("cuMemAlloc", size, kind=c_uint32)
    return lambda: call("cuMemFree", pointer)


@way("cuMemAlloc_v2, cuMemFree_v2")
def _(size: int) -> Give:
    pointer = alloc(size)
    return lambda: free(pointer)


@way("cuMemAlloc_v2, cuMemFreeAsync")
def _(size: int) -> Give:
    pointer = alloc(size)
    return lambda: call("cuMemFreeAsync", pointer, 0)


@way("cuMemAlloc_v2, cuMemFreeAsync_ptsz")
def _(size: int) -> Give:
    pointer = alloc(size)
    return lambda: call("cuMemFreeAsync_ptsz", pointer, 0)


@way("cuMemAllocManaged, cuMemFree_v2")
def _(size: int) -> Give:
    pointer = made("cuMemAllocManaged", size, 1)
    return lambda: free(pointer)


@way("cuMemAllocPitch, cuMemFree")
def _(size: int) -> Give:
    pitch = c_uint()
    pointer = made("cuMemAllocPitch", byref(pitch), 1000, size // 1000, 4, kind=c_uint32)
    return lambda: call("cuMemFree", pointer)


@way("cuMemAllocPitch_v2, cuMemFree_v2")
def _(size: int) -> Give:
    pitch = c_size_t()
    pointer = made("cuMemAllocPitch_v2", byref(pitch), 1000, size // 1000, 4)
    return lambda: free(pointer)


# ---- code ----------------------------------------------------------------------------------------

PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry nothing()
{
    ret;
}
"""


def code(size: int) -> bytes:
    """A module of so many bytes, nearly all of it a comment."""
    return PTX + b"// " + b"x" * (size - len(PTX) - 3)


def _file(size: int) -> bytes:
    with tempfile.NamedTemporaryFile(suffix=".ptx", delete=False) as file:
        file.write(code(size))
    return file.name.encode()


def _loaded(size: int, load: Callable[[bytes], int], unload: str) -> Give:
    path = _file(size)
    try:
        handle = load(path)
    finally:
        Path(path.decode()).unlink()
    return lambda: call(unload, handle)


def fat_binary(image: bytes) -> bytes:
    """What nvcc puts around code."""
    part = (1).to_bytes(2, "little") + (0x101).to_bytes(2, "little") + (64).to_bytes(4, "little")
    part += len(image).to_bytes(8, "little") + bytes(48) + image
    head = bytes.fromhex("50ed55ba") + (1).to_bytes(2, "little") + (16).to_bytes(2, "little")
    return head + len(part).to_bytes(8, "little") + part


@way("cuModuleLoad, cuModuleUnload")
def _(size: int) -> Give:
    return _loaded(size, lambda path: made("cuModuleLoad", path), "cuModuleUnload")


@way("cuModuleLoadData, cuModuleUnload")
def _(size: int) -> Give:
    module = made("cuModuleLoadData", code(size))
    return lambda: call("cuModuleUnload", module)


@way("cuModuleLoadDataEx, cuModuleUnload")
def _(size: int) -> Give:
    module = made("cuModuleLoadDataEx", code(size), 0, 0, 0)
    return lambda: call("cuModuleUnload", module)


@way("cuModuleLoadFatBinary, cuModuleUnload")
def _(size: int) -> Give:
    module = made("cuModuleLoadFatBinary", fat_binary(code(size)))
    return lambda: call("cuModuleUnload", module)


@way("cuLibraryLoadData, cuLibraryUnload")
def _(size: int) -> Give:
    library = made("cuLibraryLoadData", code(size), 0, 0, 0, 0, 0, 0)
    return lambda: call("cuLibraryUnload", library)


@way("cuLibraryLoadFromFile, cuLibraryUnload")
def _(size: int) -> Give:
    def load(path: bytes) -> int:
        return made("cuLibraryLoadFromFile", path, 0, 0, 0, 0, 0, 0)

    return _loaded(size, load, "cuLibraryUnload")
