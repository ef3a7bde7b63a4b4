"""cuda.bindings, the driver's functions one by one; they answer with codes, and raise nothing."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from cuda.bindings import driver

from tests.native.clients import client_reports
from tests.native.clients.client_reports import FITS, LAUNCHES, TOO_MUCH

IMAGE = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry vadd(.param .u64 a, .param .u64 b, .param .u64 sum, .param .u32 count) { ret; }
"""


class Refused(Exception):
    """A code that is not that of success."""


def ok(answer: tuple[Any, ...]) -> Any:
    """The values of an answer, without the code in front of them."""
    code, *values = answer
    if code:
        raise Refused(code.name)
    return values[0] if len(values) == 1 else values


def device_array(values: np.ndarray[Any, Any]) -> Any:
    """A copy in device memory."""
    pointer = ok(driver.cuMemAlloc(values.nbytes))
    ok(driver.cuMemcpyHtoD(pointer, values.ctypes.data, values.nbytes))
    return pointer


def added(kernel: Any, stream: Any) -> bool:
    """Is the sum of two arrays right, time and again?"""
    values = np.arange(1000, dtype=np.float32)
    one, other, result = (device_array(values) for _ in range(3))
    arguments = (one, other, result, len(values)), (None, None, None, ctypes.c_int)
    for _ in range(LAUNCHES):
        ok(driver.cuLaunchKernel(kernel, 4, 1, 1, 256, 1, 1, 0, stream, arguments, 0))
    back = np.empty_like(values)
    ok(driver.cuMemcpyDtoHAsync(back.ctypes.data, result, back.nbytes, stream))
    ok(driver.cuStreamSynchronize(stream))
    for pointer in (one, other, result):
        ok(driver.cuMemFree(pointer))
    return bool((back == values + values).all())


def main() -> None:
    """Allocate, copy, launch, be refused, and give everything back."""
    ok(driver.cuInit(0))
    device = ok(driver.cuDeviceGet(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))
    stream = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    module = ok(driver.cuModuleLoadData(IMAGE))
    before, total = ok(driver.cuMemGetInfo())
    ok(driver.cuMemFree(ok(driver.cuMemAlloc(FITS))))
    ok(driver.cuMemFreeAsync(ok(driver.cuMemAllocAsync(FITS, stream)), stream))
    ok(driver.cuStreamSynchronize(stream))
    computed = added(ok(driver.cuModuleGetFunction(module, b"vadd")), stream)
    refused = client_reports.refused(lambda: ok(driver.cuMemAlloc(TOO_MUCH)))
    refused_async = client_reports.refused(lambda: ok(driver.cuMemAllocAsync(TOO_MUCH, stream)))
    client_reports.tell(
        name=ok(driver.cuDeviceGetName(96, device)).split(b"\0")[0].decode(),
        total=total,
        whole=ok(driver.cuDeviceTotalMem(device)),
        computed=computed,
        refused=refused,
        refused_too=[refused_async],
        given_back=ok(driver.cuMemGetInfo())[0] == before,
    )


if __name__ == "__main__":
    main()
