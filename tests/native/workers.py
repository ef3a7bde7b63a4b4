"""Workers of multiprocessing, each with CUDA of its own: prints what each of three was given."""

from __future__ import annotations

import ctypes
import multiprocessing
import sys

MIB = 1 << 20


def work(mib: int, done: object) -> int:
    """Begin, allocate, and stay until all have."""
    cuda, context, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
    code = cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    code = code or cuda.cuCtxSetCurrent(context)
    code = code or cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib * MIB))
    return int(code)


def main(method: str) -> None:
    """Three workers, of which two fit."""
    start = multiprocessing.get_context(method)
    with start.Pool(1) as one, start.Pool(1) as two, start.Pool(1) as three:
        codes = [pool.apply(work, (200, None)) for pool in (one, two, three)]
    sys.stdout.write(" ".join(map(str, codes)))


if __name__ == "__main__":
    main(sys.argv[1])
