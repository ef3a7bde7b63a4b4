"""Ways to take memory in the order of a stream, from pools."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_void_p

from tests.native.client import call, free, made
from tests.native.ways_table import DEVICE, HOST, NOWHERE, UNCOUNTED, Give, all_or_none, way

PINNED, MANAGED = 1, 2  # of CUmemAllocationType


class PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        ("kind", c_int),
        ("handles", c_int),
        ("location", c_int * 2),
        ("security", c_void_p),
        ("most", c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


def pool(device: int = 0, where: int = DEVICE, kind: int = PINNED) -> int:
    """A pool of one's own."""
    properties = PoolProperties(kind=kind, location=(where, device))
    return made("cuMemPoolCreate", byref(properties))


def stream_pointer(size: int, suffix: str = "", stream: int = 0) -> int:
    """Memory of the device's own pool."""
    return made(f"cuMemAllocAsync{suffix}", size, stream)


def _then(pointer: int, *last: object, suffix: str = "") -> Give:
    """Free in stream order, and do what makes the pool return it to the card."""

    def give() -> None:
        call(f"cuMemFreeAsync{suffix}", pointer, 0)
        call(*last)  # type: ignore[arg-type]

    return give


@way("cuMemAllocAsync, cuMemFreeAsync, cuStreamSynchronize")
def _(size: int) -> Give:
    return _then(stream_pointer(size), "cuStreamSynchronize", 0)


@way("cuMemAllocAsync_ptsz, cuMemFreeAsync_ptsz, cuStreamSynchronize_ptsz")
def _(size: int) -> Give:
    pointer = stream_pointer(size, "_ptsz")
    return _then(pointer, "cuStreamSynchronize_ptsz", 0, suffix="_ptsz")


@way("cuMemAllocAsync, cuMemFreeAsync, cuCtxSynchronize")
def _(size: int) -> Give:
    return _then(stream_pointer(size), "cuCtxSynchronize")


@way("cuMemAllocAsync, cuMemFreeAsync, cuCtxSynchronize_v2")
def _(size: int) -> Give:
    return _then(stream_pointer(size), "cuCtxSynchronize_v2", made("cuCtxGetCurrent"))


@way("cuMemAllocAsync, cuMemFreeAsync, cuEventSynchronize")
def _(size: int) -> Give:
    pointer = stream_pointer(size)

    def give() -> None:
        event = made("cuEventCreate", 0)
        call("cuMemFreeAsync", pointer, 0)
        call("cuEventRecord", event, 0)
        call("cuEventSynchronize", event)

    return give


@way("cuMemAllocAsync, cuMemFree_v2, cuStreamSynchronize")
def _(size: int) -> Give:
    pointer = stream_pointer(size)

    def give() -> None:
        free(pointer)
        call("cuStreamSynchronize", 0)

    return give


@way("cuMemAllocAsync, cuMemFreeAsync, cuMemPoolTrimTo")
def _(size: int) -> Give:
    return _then(stream_pointer(size), "cuMemPoolTrimTo", made("cuDeviceGetMemPool", 0), 0)


@way("cuMemAllocAsync on a stream while no context is current")
def _(size: int) -> Give:
    stream, context = made("cuStreamCreate", 0), made("cuCtxGetCurrent")
    call("cuCtxSetCurrent", 0)
    try:
        pointer = stream_pointer(size, stream=stream)
    finally:
        call("cuCtxSetCurrent", context)
    return _then(pointer, "cuStreamSynchronize", stream)


def _pooled(size: int, suffix: str = "", *, own: int | None = None) -> Give:
    own = pool() if own is None else own

    def take() -> Give:
        pointer = made(f"cuMemAllocFromPoolAsync{suffix}", size, own, 0)
        return lambda: call(f"cuMemFreeAsync{suffix}", pointer, 0)

    return all_or_none([lambda: lambda: call("cuMemPoolDestroy", own), take])


@way("cuMemAllocFromPoolAsync, cuMemFreeAsync, cuMemPoolDestroy")
def _(size: int) -> Give:
    return _pooled(size)


@way("cuMemAllocFromPoolAsync_ptsz, cuMemFreeAsync_ptsz, cuMemPoolDestroy")
def _(size: int) -> Give:
    return _pooled(size, "_ptsz")


@way("cuMemAllocFromPoolAsync of a managed pool that prefers the host")
def _(size: int) -> Give:
    return _pooled(size, own=pool(where=HOST, kind=MANAGED))


@way("cuMemAllocFromPoolAsync of a managed pool that prefers nothing")
def _(size: int) -> Give:
    return _pooled(size, own=pool(where=NOWHERE, kind=MANAGED))


@way("cuMemAllocFromPoolAsync, cuMemPoolDestroy, cuMemFreeAsync")
def _(size: int) -> Give:
    own = pool()

    def take() -> Give:
        pointer = made("cuMemAllocFromPoolAsync", size // 2, own, 0)
        return lambda: call("cuMemFreeAsync", pointer, 0)

    try:
        return all_or_none([take, take])
    finally:
        call("cuMemPoolDestroy", own)


@way("cuMemAllocAsync after cuDeviceSetMemPool")
def _(size: int) -> Give:
    own, before = pool(), made("cuDeviceGetMemPool", 0)

    def take() -> Give:
        call("cuDeviceSetMemPool", 0, own)
        try:
            pointer = stream_pointer(size)
        finally:
            call("cuDeviceSetMemPool", 0, before)
        return lambda: call("cuMemFreeAsync", pointer, 0)

    return all_or_none([lambda: lambda: call("cuMemPoolDestroy", own), take])


@way("cuMemAllocFromPoolAsync of a pool of the host", UNCOUNTED)
def _(size: int) -> Give:
    own = pool(where=HOST)
    pointer = made("cuMemAllocFromPoolAsync", size, own, 0)
    return _then(pointer, "cuMemPoolDestroy", own)
