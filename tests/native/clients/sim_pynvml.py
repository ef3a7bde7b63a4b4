"""nvidia-ml-py, as monitors use it."""

from __future__ import annotations

import pynvml

from tests.native.clients import sim_telling


def main() -> None:
    """Look at the first card."""
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(card)
    sim_telling.tell(
        name=pynvml.nvmlDeviceGetName(card),
        uuid=pynvml.nvmlDeviceGetUUID(card),
        total=pynvml.nvmlDeviceGetMemoryInfo(card).total,
        total_v2=memory.total,
        used=memory.used,
        processes={each.pid: each.usedGpuMemory for each in processes},
        refused=sim_telling.refused(lambda: pynvml.nvmlDeviceGetHandleByIndex(99)),
    )
    pynvml.nvmlShutdown()


if __name__ == "__main__":
    main()
