"""nvidia-ml-py, as monitors use it."""

from __future__ import annotations

import pynvml

from tests.native.clients import client_reports


def main() -> None:
    """Look at the first card."""
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(card)
    client_reports.tell(
        name=pynvml.nvmlDeviceGetName(card),
        uuid=pynvml.nvmlDeviceGetUUID(card),
        total=pynvml.nvmlDeviceGetMemoryInfo(card).total,
        total_v2=memory.total,
        used=memory.used,
        processes={process.pid: process.usedGpuMemory for process in processes},
        refused=client_reports.refused(lambda: pynvml.nvmlDeviceGetHandleByIndex(99)),
    )
    pynvml.nvmlShutdown()


if __name__ == "__main__":
    main()
