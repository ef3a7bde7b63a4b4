"""Kernels that take time, for the programs of `client`; it needs the standard library alone."""

from __future__ import annotations

import ctypes
import functools
import time
from ctypes import byref, c_uint, c_uint64, c_void_p

from tests.native.client import answer, call, made

IMAGE = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry spin_us(.param .u32 microseconds) { ret; }
.visible .entry other(.param .u32 microseconds) { ret; }
"""


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("count", c_uint),
    )


@functools.cache
def kernel() -> int:
    """A kernel that takes as long as its argument says."""
    module = made("cuModuleLoadData", IMAGE)
    return int(made("cuModuleGetFunction", module, b"spin_us"))


def launch(micros: int, form: str = "cuLaunchKernel", blocks: int = 864, stream: int = 0) -> int:
    """One kernel, launched in one of the ways there are; the driver's answer."""
    argument = c_uint(micros)
    arguments = (c_void_p * 1)(ctypes.addressof(argument))
    sizes = (blocks, 1, 1, 128, 1, 1, 0)
    if form.startswith("cuLaunchKernelEx"):
        config = Config((c_uint * 3)(blocks, 1, 1), (c_uint * 3)(128, 1, 1), 0, stream, None, 0)
        return int(answer(form, byref(config), kernel(), arguments, None))
    if form.startswith("cuLaunchCooperative"):
        return int(answer(form, kernel(), *sizes, stream, arguments))
    return int(answer(form, kernel(), *sizes, stream, arguments, None))


def took(count: int, micros: int, form: str = "cuLaunchKernel", blocks: int = 864) -> float:
    """How long it takes until so many kernels are done, in seconds."""
    began = time.monotonic()
    for _ in range(count):
        if code := launch(micros, form, blocks):
            raise RuntimeError(f"{form}: {code}")
    call("cuCtxSynchronize")
    return time.monotonic() - began


def graph(count: int, micros: int) -> int:
    """So many kernels, captured and made ready to be launched at once."""
    stream = made("cuStreamCreate", 1)
    call("cuStreamBeginCapture_v2", stream, 1)
    for _ in range(count):
        launch(micros, stream=stream)
    captured = made_last("cuStreamEndCapture", stream)
    return int(made("cuGraphInstantiateWithFlags", captured, 0))


def made_last(name: str, *arguments: object) -> int:
    """As `made`, of a function whose last argument is where its result goes."""
    out = c_uint64()
    call(name, *arguments, byref(out))
    return out.value


def graphs_took(count: int, kernels: int, micros: int) -> float:
    """How long it takes until a graph was run so many times."""
    ready = graph(kernels, micros)
    began = time.monotonic()
    for _ in range(count):
        call("cuGraphLaunch", ready, 0)
    call("cuCtxSynchronize")
    return time.monotonic() - began
