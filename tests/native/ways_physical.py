"""Ways to take memory that has no address, and to give it one."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_void_p

from tests.native.client import call, made
from tests.native.ways_table import DEVICE, HOST, STEP, UNCOUNTED, Give, all_or_none, way

FILE_DESCRIPTOR = 1  # of CUmemAllocationHandleType


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("kind", c_int),
        ("handles", c_int),
        ("location", c_int * 2),
        ("metadata", c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


def physical(size: int, device: int = 0, where: int = DEVICE) -> int:
    """Memory without an address."""
    properties = AllocationProperties(kind=1, handles=FILE_DESCRIPTOR, location=(where, device))
    return made("cuMemCreate", size, byref(properties), 0)


def addresses(size: int) -> int:
    """Addresses without memory."""
    return made("cuMemAddressReserve", size, 0, 0, 0)


@way("cuMemCreate, cuMemRelease")
def _(size: int) -> Give:
    handle = physical(size)
    return lambda: call("cuMemRelease", handle)


@way("cuMemCreate, cuMemMap, cuMemRelease, cuMemUnmap")
def _(size: int) -> Give:
    handle, at = physical(size), addresses(size)
    call("cuMemMap", at, size, 0, handle, 0)
    call("cuMemRelease", handle)
    return lambda: call("cuMemUnmap", at, size)


@way("cuMemCreate, cuMemMap, cuMemUnmap, cuMemRelease")
def _(size: int) -> Give:
    handle, at = physical(size), addresses(size)
    call("cuMemMap", at, size, 0, handle, 0)

    def give() -> None:
        call("cuMemUnmap", at, size)
        call("cuMemRelease", handle)

    return give


@way("cuMemCreate, cuMemMap twice, cuMemRelease, cuMemUnmap of both")
def _(size: int) -> Give:
    handle, at = physical(size), addresses(2 * size)
    call("cuMemMap", at, size, 0, handle, 0)
    call("cuMemMap", at + size, size, 0, handle, 0)
    call("cuMemRelease", handle)

    def give() -> None:
        call("cuMemUnmap", at, size)
        call("cuMemUnmap", at + size, size)

    return give


@way("cuMemCreate twice, cuMemMap side by side, one cuMemUnmap")
def _(size: int) -> Give:
    at, half = addresses(size), size // 2

    def take(offset: int) -> Give:
        handle = physical(half)
        call("cuMemMap", at + offset, half, 0, handle, 0)
        call("cuMemRelease", handle)
        return lambda: call("cuMemUnmap", at + offset, half)

    all_or_none([lambda: take(0), lambda: take(half)])
    return lambda: call("cuMemUnmap", at, size)


@way("cuMemCreate beside memory of the host, one cuMemUnmap")
def _(size: int) -> Give:
    at, handles = addresses(STEP + size), (physical(size), physical(STEP, where=HOST))
    call("cuMemMap", at, STEP, 0, handles[1], 0)
    call("cuMemMap", at + STEP, size, 0, handles[0], 0)
    for handle in handles:
        call("cuMemRelease", handle)
    return lambda: call("cuMemUnmap", at, STEP + size)


@way("cuMemCreate, cuMemMap, cuMemRetainAllocationHandle, cuMemRelease of both")
def _(size: int) -> Give:
    handle, at = physical(size), addresses(size)
    call("cuMemMap", at, size, 0, handle, 0)
    again = made("cuMemRetainAllocationHandle", at)
    call("cuMemUnmap", at, size)
    call("cuMemRelease", handle)
    return lambda: call("cuMemRelease", again)


@way("cuMemCreate of the host, cuMemRelease", UNCOUNTED)
def _(size: int) -> Give:
    handle = physical(size, where=HOST)
    return lambda: call("cuMemRelease", handle)


@way("cuMemAllocHost_v2, cuMemFreeHost", UNCOUNTED)
def _(size: int) -> Give:
    pointer = made("cuMemAllocHost_v2", size)
    return lambda: call("cuMemFreeHost", pointer)
