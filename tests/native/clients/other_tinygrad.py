"""tinygrad, which calls the driver's functions one by one through ctypes."""

from __future__ import annotations

from tinygrad.device import Device
from tinygrad.tensor import Tensor

from tests.native.clients import client_reports
from tests.native.clients.client_reports import FITS, TOO_MUCH


def main() -> None:
    """Take, be refused, and go on."""
    allocator = Device["CUDA"].allocator
    kept = allocator.alloc(FITS)
    refused = client_reports.refused(lambda: allocator.alloc(TOO_MUCH))
    went = [1.0, 2.0, 3.0]
    came = Tensor(went, device="CUDA").realize()
    (
        came + came
    ).realize()  # by a kernel that tinygrad compiles, and the simulated card does not run
    client_reports.tell(on=str(Device["CUDA"].device), refused=refused, holds=came.tolist() == went)
    allocator.free(kept, FITS)


if __name__ == "__main__":
    main()
