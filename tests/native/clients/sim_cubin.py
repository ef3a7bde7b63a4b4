"""Writes a cubin that NVRTC compiles, two kernels and two variables, to the file it is told."""

from __future__ import annotations

import sys
from pathlib import Path

from cuda.bindings import nvrtc

CODE = b"""
__constant__ int table[16];
__device__ double value;
struct pair { double number; char letter; };

extern "C" __global__ void first(const float *in, float *out, int count)
{
    *out = *in + table[count & 15] + value;
}

extern "C" __global__ void second(pair both, char letter)
{
    if (both.letter == letter)
        value = both.number;
}
"""


def main() -> None:
    """Compile for a card that need not be there."""
    _, program = nvrtc.nvrtcCreateProgram(CODE, b"code.cu", 0, [], [])
    (failed,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_80"])
    if failed:
        sys.exit(failed.name)
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    cubin = bytes(size)
    nvrtc.nvrtcGetCUBIN(program, cubin)  # written into it, though it is bytes
    Path(sys.argv[1]).write_bytes(cubin)


if __name__ == "__main__":
    main()
