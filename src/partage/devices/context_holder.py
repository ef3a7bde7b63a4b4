"""A program that makes one CUDA context on the first card it sees, says so, and waits.

Run as a file of its own, with nothing of Partage around it: what it costs on the card is what a
context costs (:mod:`partage.devices.context_measurement`). It ends when its standard input does.
"""

import ctypes
import sys


def main() -> None:
    """Make the context that programs of the CUDA runtime use: the card's primary one."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    for name, arguments in (
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)),
    ):
        code = getattr(cuda, name)(*arguments)
        if code:
            sys.exit(f"{name} failed with error {code}")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
