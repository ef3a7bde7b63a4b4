"""numba-cuda with a kernel that it compiles itself, as far as a cubin.

What such a kernel would compute is not looked at: the simulated driver runs no code, and knows the
few kernels that it computes by names that numba does not give. Launches are real ones all the same.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tests.native.clients import client_reports
from tests.native.clients.client_reports import FITS, LAUNCHES, TOO_MUCH

cuda: Any = importlib.import_module("numba.cuda")  # numba-cuda's, of which type checkers know not


def _add(one: Any, other: Any, result: Any) -> None:
    i = cuda.grid(1)
    if i < result.size:
        result[i] = one[i] + other[i]


add = cuda.jit(_add)


def launched(values: np.ndarray[Any, Any]) -> bool:
    """Compile and launch; do arrays come back from the device as they went there?"""
    one, other = cuda.to_device(values), cuda.to_device(values[::-1].copy())
    result = cuda.device_array_like(values)
    for _ in range(LAUNCHES):
        add[256, 64](one, other, result)
    cuda.synchronize()
    result.copy_to_device(other)
    went, came = (values, values[::-1]), (one.copy_to_host(), result.copy_to_host())
    return all((sent == back).all() for sent, back in zip(went, came, strict=True))


def main() -> None:
    """Allocate, copy, compile, launch, be refused, and give everything back."""
    context = cuda.current_context()
    freed = context.memory_manager.deallocations  # put off until somebody asks
    values = np.arange(1000, dtype=np.float32)
    intact = launched(values)
    freed.clear()
    before, total = context.get_memory_info()
    kept = cuda.device_array(FITS, dtype=np.uint8)
    refused = client_reports.refused(lambda: cuda.device_array(TOO_MUCH, dtype=np.uint8))
    managed = client_reports.refused(lambda: cuda.managed_array(TOO_MUCH, dtype=np.uint8))
    del kept
    freed.clear()
    client_reports.tell(
        name=cuda.get_current_device().name,
        total=total,
        compiled=add.inspect_asm(next(iter(add.signatures))).count(".entry"),
        intact=intact,
        refused=refused,
        refused_too=[managed],
        given_back=context.get_memory_info()[0] == before,
    )


if __name__ == "__main__":
    main()
