"""Kernels that take time, for the programs of `client`; it needs the standard library alone."""

from __future__ import annotations

import ctypes
import functools
import itertools
import pathlib
import time
from ctypes import byref, c_uint, c_uint64, c_void_p

from tests.native.client import answer, call, made

OLD_FORMS = ("cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync")
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


class Part(ctypes.Structure):
    """CUDA_LAUNCH_PARAMS."""

    _fields_ = (
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("arguments", c_void_p),
    )


@functools.cache
def kernel() -> int:
    """A kernel that takes as long as its argument says."""
    module = made("cuModuleLoadData", IMAGE)
    return int(made("cuModuleGetFunction", module, b"spin_us"))


def launch(micros: int, form: str = "cuLaunchKernel", blocks: int = 864, stream: int = 0) -> int:
    """One kernel, launched in one of the ways there are; the driver's answer."""
    if form in OLD_FORMS:
        return _launch_as_of_old(micros, form, blocks)
    argument = c_uint(micros)
    arguments = (c_void_p * 1)(ctypes.addressof(argument))
    sizes = (blocks, 1, 1, 128, 1, 1, 0)
    if form.startswith("cuLaunchKernelEx"):
        config = Config((c_uint * 3)(blocks, 1, 1), (c_uint * 3)(128, 1, 1), 0, stream, None, 0)
        return int(answer(form, byref(config), kernel(), arguments, None))
    if form == "cuLaunchCooperativeKernelMultiDevice":
        grid, block = (c_uint * 3)(blocks, 1, 1), (c_uint * 3)(128, 1, 1)
        at = ctypes.addressof(arguments)
        return int(answer(form, byref(Part(kernel(), grid, block, 0, own_stream(), at)), 1, 0))
    if form.startswith("cuLaunchCooperative"):
        return int(answer(form, kernel(), *sizes, stream, arguments))
    return int(answer(form, kernel(), *sizes, stream, arguments, None))


@functools.cache
def own_stream() -> int:
    """For launches that do not go with the default stream."""
    return int(made("cuStreamCreate", 1))


def _launch_as_of_old(micros: int, form: str, blocks: int) -> int:
    call("cuFuncSetBlockShape", kernel(), 128, 1, 1)
    call("cuParamSeti", kernel(), 0, micros)
    call("cuParamSetSize", kernel(), 4)
    return int(answer(form, kernel(), *{"cuLaunch": ()}.get(form, (blocks, 1, 0))))


def took(count: int, micros: int, form: str = "cuLaunchKernel", blocks: int = 864) -> float:
    """How long it takes until so many kernels are done, in seconds."""
    began = time.monotonic()
    for _ in range(count):
        if code := launch(micros, form, blocks):
            raise RuntimeError(f"{form}: {code}")
    call("cuCtxSynchronize")
    return time.monotonic() - began


def keep_busy(until: str, micros: int, in_flight: int = 4) -> None:
    """Always have kernels that wait for the card, until there is such a file."""
    streams = [made("cuStreamCreate", 1) for _ in range(in_flight)]
    for stream in itertools.cycle(streams):
        if pathlib.Path(until).exists():
            break
        call("cuStreamSynchronize", stream)
        launch(micros, stream=stream)
    call("cuCtxSynchronize")


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
