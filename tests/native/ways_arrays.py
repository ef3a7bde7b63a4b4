"""Ways to take memory with a shape."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint
from typing import Any

from tests.native.client import call, made
from tests.native.ways_table import UNCOUNTED, Give, way

FLOAT = 0x20
LAYERED, CUBEMAP, SPARSE = 0x01, 0x04, 0x40


def _descriptor(kind: type[Any], *words: int) -> ctypes.Structure:
    class Descriptor(ctypes.Structure):
        _fields_ = (
            *((name, kind) for name in ("width", "height", "depth")[: len(words)]),
            ("format", c_int),
            ("channels", c_uint),
            ("flags", c_uint),
        )

    return Descriptor(*words, FLOAT, 4)


def array(function: str, kind: type[Any], *extents: int, flags: int = 0) -> Give:
    """Take an array by a function whose descriptions have extents of that kind."""
    descriptor = _descriptor(kind, *extents)
    descriptor.flags = flags
    array = made(function, byref(descriptor))
    return lambda: call("cuArrayDestroy", array)


def rows(size: int, width: int = 1024) -> int:
    """How many rows of elements of 16 bytes it takes."""
    return size // (16 * width)


@way("cuArrayCreate, cuArrayDestroy")
def _(size: int) -> Give:
    return array("cuArrayCreate", c_uint, 1024, rows(size))


@way("cuArrayCreate_v2 in 1 dimension, cuArrayDestroy")
def _(size: int) -> Give:
    return array("cuArrayCreate_v2", c_size_t, size // 16, 0)


@way("cuArrayCreate_v2 in 2 dimensions, cuArrayDestroy")
def _(size: int) -> Give:
    return array("cuArrayCreate_v2", c_size_t, 1024, rows(size))


@way("cuArray3DCreate, cuArrayDestroy")
def _(size: int) -> Give:
    return array("cuArray3DCreate", c_uint, 64, 64, rows(size, 64 * 64))


@way("cuArray3DCreate_v2 in 3 dimensions, cuArrayDestroy")
def _(size: int) -> Give:
    return array("cuArray3DCreate_v2", c_size_t, 64, 64, rows(size, 64 * 64))


@way("cuArray3DCreate_v2 in layers, cuArrayDestroy")
def _(size: int) -> Give:
    depth = rows(size, 256 * 256)
    return array("cuArray3DCreate_v2", c_size_t, 256, 256, depth, flags=LAYERED)


@way("cuArray3DCreate_v2 of a cube, cuArrayDestroy")
def _(size: int) -> Give:
    side = int((size / 96) ** 0.5) + 1
    return array("cuArray3DCreate_v2", c_size_t, side, side, 6, flags=CUBEMAP)


@way("cuMipmappedArrayCreate, cuMipmappedArrayDestroy")
def _(size: int) -> Give:
    descriptor = _descriptor(c_size_t, 1024, rows(size), 0)
    mipmap = made("cuMipmappedArrayCreate", byref(descriptor), 5)
    return lambda: call("cuMipmappedArrayDestroy", mipmap)


@way("cuArray3DCreate_v2 with sparse memory, cuArrayDestroy", UNCOUNTED)
def _(size: int) -> Give:
    return array("cuArray3DCreate_v2", c_size_t, 1024, rows(size), 0, flags=SPARSE)
