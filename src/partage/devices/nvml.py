"""NVML, the driver's own account of its cards.

One card that cannot be asked at all is a Device with a problem, and a Reading without numbers,
beside the others. How missing data and errors are told: :mod:`partage.devices.nvml_calls`.

The memory limits of R615 are called by their C interface, on the library that ``pynvml`` loaded:
it knows them only since that release.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import msgspec
import pynvml

from partage.core import cards, errors
from partage.core.quantities import MIB
from partage.devices import card_links, nvml_calls

_PCI = Path("/sys/bus/pci/devices")
_SET, _GET = "nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One card as its driver reports it; None is what it does not tell."""

    index: int
    uuid: str | None = None
    minor: int | None = None  # of /dev/nvidia<minor>
    model: str | None = None
    memory_mib: int | None = None
    used_mib: int | None = None
    utilization_percent: int | None = None  # how much of the last moments it worked
    temperature_c: int | None = None
    bus: str | None = None  # its address on the PCI bus
    numa: int | None = None
    compute_capability: tuple[int, int] | None = None
    mig: bool | None = None  # whether it is cut into MIG instances
    links: tuple[tuple[str, int], ...] = ()  # to other cards by their uuid, as in cards.Link
    problem: str = ""  # why it cannot be used

    @property
    def card(self) -> cards.Card | None:
        """As decisions are made from; None if it cannot be named or measured."""
        if self.uuid is None or not self.memory_mib:
            return None
        return cards.Card(
            uuid=self.uuid,
            index=self.index,
            memory_mib=self.memory_mib,
            model=self.model or "",
            healthy=not self.problem,
            minor=self.minor,
            numa=self.numa,
            links=self.links,
        )


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What changes on a card all the time; None is what it does not tell, all of it if lost."""

    index: int
    uuid: str | None = None
    used_bytes: int | None = None
    utilization_percent: int | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    corrected_errors: int | None = None  # of memory, since the last reset
    uncorrected_errors: int | None = None


class Process(msgspec.Struct, frozen=True):
    """A process on a card, by its host's process id; None: the driver does not tell its memory."""

    pid: int
    used_bytes: int | None


class Occupancy(msgspec.Struct, frozen=True):
    """A card, with all that is in use there and who holds it, at about the same moment."""

    uuid: str
    used_bytes: int | None  # without what the driver keeps for itself, where it tells that apart
    processes: tuple[Process, ...]


class MemoryLimits(msgspec.Struct, frozen=True):
    """What a cgroup may use of a card, and does."""

    soft_bytes: int
    hard_bytes: int
    used_bytes: int


class _SetLimits(ctypes.Structure):
    _fields_: ClassVar = [
        ("namespace", ctypes.c_char_p),
        ("soft", ctypes.c_ulonglong),
        ("hard", ctypes.c_ulonglong),
    ]


class _GetLimits(ctypes.Structure):
    _fields_: ClassVar = [*_SetLimits._fields_, ("used", ctypes.c_ulonglong)]


class Nvml:
    """NVML while it is open: ``with nvml.Nvml() as driver: driver.devices()``."""

    def __init__(self, pci: Path = _PCI) -> None:
        self._pci = pci

    def __enter__(self) -> Nvml:
        nvml_calls.required("NVML", pynvml.nvmlInit)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def driver_version(self) -> str:
        """Such as ``615.71.05``."""
        return str(nvml_calls.required("the driver", pynvml.nvmlSystemGetDriverVersion))

    def devices(self) -> tuple[Device, ...]:
        """All cards in index order, the unhealthy ones too."""
        devices = tuple(self._device(index) for index in range(_count()))
        links = card_links.links([device.uuid for device in devices if device.uuid is not None])
        return tuple(
            msgspec.structs.replace(device, links=links.get(device.uuid or "", ()))
            for device in devices
        )

    def readings(self) -> tuple[Reading, ...]:
        """What all cards are doing now, in index order, for metrics: a few calls for each card."""
        return tuple(_reading(index) for index in range(_count()))

    def processes(self, uuid: str) -> tuple[Process, ...]:
        """The processes on a card: compute, graphics, and clients of MPS."""
        handle = self._handle(uuid)
        answers = [_running(kind, handle) for kind in ("Compute", "Graphics", "MPSCompute")]
        if all(answer is None for answer in answers):  # ask once more, for the reason
            nvml_calls.required(
                f"card {uuid}", pynvml.nvmlDeviceGetComputeRunningProcesses_v2, handle
            )
        return _merged(process for answer in answers for process in answer or ())

    def occupancy(self, uuid: str) -> Occupancy:
        """What is in use on a card, and by which processes.

        Both numbers before and after: what came or went meanwhile does not look as if processes
        held more than there is.
        """
        handle = self._handle(uuid)
        before = _used_bytes(handle)
        processes = self.processes(uuid)
        after = _used_bytes(handle)
        amounts = [used for used in (before, after) if used is not None]
        return Occupancy(uuid, max(amounts, default=None), processes)

    def set_memory_limits(
        self, uuid: str, cgroup: str, *, soft_bytes: int, hard_bytes: int
    ) -> None:
        """Limit what a cgroup uses of a card; needs root."""
        limits = _SetLimits(cgroup.encode(), soft_bytes, hard_bytes)
        self._limits(_SET, uuid, limits)

    def memory_limits(self, uuid: str, cgroup: str) -> MemoryLimits:
        """What a cgroup may use of a card, and does."""
        limits = _GetLimits(cgroup.encode())
        self._limits(_GET, uuid, limits)
        return MemoryLimits(limits.soft, limits.hard, limits.used)

    def _limits(self, name: str, uuid: str, limits: _SetLimits | _GetLimits) -> None:
        try:
            function = getattr(pynvml.nvmlLib, name)
        except AttributeError:
            raise errors.DeviceError(
                "function-not-found",
                f"this driver has no {name}",
                instead="install a driver of version 615 or newer",
            ) from None
        code = function(self._handle(uuid), ctypes.byref(limits))
        if code != pynvml.NVML_SUCCESS:
            raise nvml_calls.explained(f"card {uuid}", pynvml.NVMLError(code))

    def _handle(self, uuid: str) -> Any:
        return nvml_calls.required(f"card {uuid}", pynvml.nvmlDeviceGetHandleByUUID, uuid)

    def _device(self, index: int) -> Device:
        try:
            handle = nvml_calls.required(f"card {index}", pynvml.nvmlDeviceGetHandleByIndex, index)
        except errors.DeviceError as error:
            return Device(index=index, problem=str(error))
        memory = nvml_calls.optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
        pci = nvml_calls.optional(pynvml.nvmlDeviceGetPciInfo, handle)
        mig = nvml_calls.optional(pynvml.nvmlDeviceGetMigMode, handle)
        uuid = nvml_calls.optional(pynvml.nvmlDeviceGetUUID, handle)
        bus = nvml_calls.text(pci.busId).lower() if pci else None
        return Device(
            index=index,
            uuid=uuid,
            minor=nvml_calls.optional(pynvml.nvmlDeviceGetMinorNumber, handle),
            model=nvml_calls.optional(pynvml.nvmlDeviceGetName, handle),
            memory_mib=memory.total // MIB if memory else None,
            used_mib=memory.used // MIB if memory else None,
            utilization_percent=_utilization_percent(handle),
            temperature_c=_temperature_c(handle),
            bus=bus,
            numa=self._numa(bus),
            compute_capability=nvml_calls.optional(
                pynvml.nvmlDeviceGetCudaComputeCapability, handle
            ),
            mig=mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE if mig else None,
            problem="" if uuid and memory else "the driver does not tell its uuid or its memory",
        )

    def _numa(self, bus: str | None) -> int | None:
        """From the kernel, which writes the domain with four digits where NVML has eight."""
        if bus is None:
            return None
        try:
            text = (self._pci / bus[-len("0000:00:00.0") :] / "numa_node").read_text("ascii")
            return int(text) if int(text) >= 0 else None
        except (OSError, ValueError):
            return None


def _count() -> int:
    return int(nvml_calls.required("the driver", pynvml.nvmlDeviceGetCount))


def _used_bytes(handle: Any) -> int | None:
    """Drivers before R510 have one form only, and what they keep for themselves is in it."""
    memory = nvml_calls.optional(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if memory is None:
        memory = nvml_calls.optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if memory is None else int(memory.used)


def _utilization_percent(handle: Any) -> int | None:
    rates = nvml_calls.optional(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return int(rates.gpu) if rates else None


def _temperature_c(handle: Any) -> int | None:
    temperature_c: int | None = nvml_calls.optional(
        pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU
    )
    return temperature_c


def _reading(index: int) -> Reading:
    handle = nvml_calls.optional(pynvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return Reading(index=index)
    memory = nvml_calls.optional(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return Reading(
        index=index,
        uuid=nvml_calls.optional(pynvml.nvmlDeviceGetUUID, handle),
        used_bytes=memory.used if memory else None,
        utilization_percent=_utilization_percent(handle),
        temperature_c=_temperature_c(handle),
        power_mw=nvml_calls.optional(pynvml.nvmlDeviceGetPowerUsage, handle),
        corrected_errors=nvml_calls.ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        uncorrected_errors=nvml_calls.ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    )


def _running(kind: str, handle: object) -> Any:
    """Processes of a kind; drivers before R510 know the older form only."""
    name = f"nvmlDeviceGet{kind}RunningProcesses"
    newer = nvml_calls.optional(getattr(pynvml, f"{name}_v3"), handle)
    return (
        newer if newer is not None else nvml_calls.optional(getattr(pynvml, f"{name}_v2"), handle)
    )


def _merged(processes: Iterable[Any]) -> tuple[Process, ...]:
    """A process that does several things on a card is there once, with all its memory."""
    used_bytes: dict[int, int | None] = {}
    for process in processes:
        used, before = process.usedGpuMemory, used_bytes.get(process.pid)
        used_bytes[process.pid] = before if used is None else max(used, before or 0)
    return tuple(Process(pid, used) for pid, used in sorted(used_bytes.items()))
