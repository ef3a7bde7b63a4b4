"""cuda.core: memory of its own pool and by mappings, streams, events, a kernel by NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import (
    Buffer,
    Device,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    Program,
    ProgramOptions,
    VirtualMemoryResource,
    launch,
    system,
)

from tests.native.clients import client_reports
from tests.native.clients.client_reports import FITS, LAUNCHES, TOO_MUCH

CODE = """
extern "C" __global__ void vadd(const float *a, const float *b, float *sum, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        sum[i] = a[i] + b[i];
}
"""
COUNT = 1000


def host_array(buffer: Buffer) -> np.ndarray[Any, Any]:
    """The host's view of pinned memory."""
    return np.from_dlpack(buffer).view(np.float32)


def added(kernel: Any, device: Device, stream: Any) -> tuple[bool, float]:
    """Is the sum of two arrays right, time and again; and how many milliseconds did that take?"""
    one, other, result = (device.allocate(4 * COUNT, stream=stream) for _ in range(3))
    host = LegacyPinnedMemoryResource().allocate(4 * COUNT)
    values = np.arange(COUNT, dtype=np.float32)
    host_array(host)[:] = values
    for buffer in (one, other):
        buffer.copy_from(host, stream=stream)
    timed = EventOptions(timing_enabled=True)
    start = stream.record(options=timed)
    for _ in range(LAUNCHES):
        launch(stream, LaunchConfig(grid=4, block=256), kernel, one, other, result, COUNT)
    stop = stream.record(options=timed)
    result.copy_to(host, stream=stream)
    stream.sync()
    right = bool((host_array(host) == values + values).all())
    for buffer in (one, other, result):
        buffer.close(stream)
    stream.sync()
    return right, stop - start


def used_bytes(device: Device) -> int:
    """What the card has in use, without what the pool only keeps."""
    driver.cuMemPoolTrimTo(device.memory_resource.handle, 0)
    return int(system.Device(index=0).memory_info.used)


def main() -> None:
    """Allocate, copy, compile, launch, be refused, and give everything back."""
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    options = ProgramOptions(arch=f"sm_{device.arch}")
    kernel = Program(CODE, code_type="c++", options=options).compile("cubin").get_kernel("vadd")
    before = used_bytes(device)
    device.allocate(FITS, stream=stream).close()
    computed, took_ms = added(kernel, device, stream)
    # Only asked for what it cannot have: cuda.core 1.2 does not release what it maps, ever.
    mapped = VirtualMemoryResource(device)
    client_reports.tell(
        name=device.name,
        total=system.Device(index=0).memory_info.total,
        computed=computed,
        took_ms=took_ms,
        refused=client_reports.refused(lambda: device.allocate(TOO_MUCH, stream=stream)),
        refused_too=[client_reports.refused(lambda: mapped.allocate(TOO_MUCH, stream=stream))],
        given_back=used_bytes(device) == before,
    )


if __name__ == "__main__":
    main()
