"""A CUDA program that does what it is told, line by line, and prints what came of it.

``alloc MIB`` prints the driver's result, ``total`` the size of the card in MiB, ``launch`` the
result of an empty kernel. Run as a file of its own, in a tenant's environment.
"""

import ctypes
import sys

MIB = 1 << 20
KERNEL = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing()
{
    ret;
}
"""


class Client:
    """One context on the first card."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        assert self.cuda.cuInit(0) == 0
        assert self.cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
        assert self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
        assert self.cuda.cuCtxSetCurrent(context) == 0
        self.kernel = ctypes.c_void_p()

    def alloc(self, mib: str) -> int:
        """Allocate, and keep it."""
        pointer = ctypes.c_uint64()
        return int(self.cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(mib) * MIB)))

    def total(self) -> int:
        """How large the card is said to be."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
        return total.value // MIB

    def launch(self) -> int:
        """Launch a kernel that does nothing, and wait for it."""
        if self.kernel.value is None:
            module = ctypes.c_void_p()
            assert self.cuda.cuModuleLoadData(ctypes.byref(module), KERNEL) == 0
            code = self.cuda.cuModuleGetFunction(ctypes.byref(self.kernel), module, b"nothing")
            assert code == 0
        self.cuda.cuLaunchKernel(self.kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        return int(self.cuda.cuCtxSynchronize())


def main() -> None:
    """Do what comes in."""
    client = Client()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        name, *arguments = line.split()
        sys.stdout.write(f"{getattr(client, name)(*arguments)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
