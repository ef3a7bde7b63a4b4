"""A program of a job: takes all memory of its card that it is given, a GiB at a time, and tells.

``taker.py FOLDER``. What it was given is in FOLDER as a file of its own, which is there as a whole
or not at all. It holds the memory until there is a file ``end`` in FOLDER. It needs the standard
library alone, because users of jobs cannot read the checkout.
"""

import ctypes
import json
import os
import pathlib
import sys
import time

GIB = 1 << 30
TOLD = (
    "SLURM_JOB_ID",
    "SLURM_PROCID",
    "SLURMD_NODENAME",
    "SLURM_SHARDS_ON_NODE",
    "SLURM_JOB_GPUS",
    "CUDA_VISIBLE_DEVICES",
)


def main() -> None:
    """Take, tell, hold."""
    folder = pathlib.Path(sys.argv[1])
    driver = ctypes.CDLL("libcuda.so.1")
    context, pointer, total = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxSetCurrent(context)
    driver.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
    given, began_ns = 0, time.monotonic_ns()
    while driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_uint64(GIB)) == 0:
        given += 1
    held_ns = [began_ns, time.monotonic_ns()]  # so far, and by the clock of the whole machine
    _tell(folder, {"given": given, "total": total.value, "held_ns": held_ns, "pid": os.getpid()})
    while not (folder / "end").exists():
        time.sleep(0.05)


def _tell(folder: pathlib.Path, facts: dict[str, object]) -> None:
    facts.update((name, os.environ.get(name, "")) for name in TOLD)
    path = folder / "-".join([str(facts[name]) for name in TOLD[:3]])
    path.write_text(json.dumps(facts))
    path.rename(path.with_suffix(".told"))


if __name__ == "__main__":
    main()
