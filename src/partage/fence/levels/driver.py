"""The fence ``driver``: memory limits that the kernel driver keeps for a cgroup.

NVIDIA's drivers from R615 on limit the device memory of a control group (version 2), through
``nvmlDeviceSetMemoryLimits_v1``. The limit belongs on the tenant's leaf: then its programs also see
it as the size of the card. It has to be there before they start. Memory only; compute needs
another level beside this one. Managed memory (``cudaMallocManaged``) is not counted by the driver.

Written against NVIDIA's documentation and tested on the simulated driver: it has not met hardware.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from partage.core import errors
from partage.fence.levels import catalog
from partage.fence.store import limits

LEVEL = catalog.Level.DRIVER
FIRST_VERSION = 615
NO_LIMIT = limits.NO_QUOTA  # NVML_DEVICE_MEMORY_LIMIT_MAX


class MemoryLimits(Protocol):
    """The limits of a cgroup on a card."""

    @property
    def soft_bytes(self) -> int:
        """Above this the driver may take memory back."""

    @property
    def hard_bytes(self) -> int:
        """Above this an allocation fails."""


class Port(Protocol):
    """What is needed of NVML; :class:`partage.devices.nvml.Nvml` is one."""

    def set_memory_limits(
        self, uuid: str, cgroup: str, *, soft_bytes: int, hard_bytes: int
    ) -> None:
        """Set both limits of a cgroup on a card."""

    def memory_limits(self, uuid: str, cgroup: str) -> MemoryLimits:
        """Read both back."""


class Driver:
    """Fences that the driver keeps."""

    def __init__(self, port: Port) -> None:
        self._port = port

    @property
    def level(self) -> catalog.Level:
        return LEVEL

    def apply(self, subject: catalog.Subject, requested: limits.Limits) -> catalog.Applied:
        """Set the limits of the tenant's cgroup on all its cards.

        Where that fails on one card the limits of the others stay: the tenant must not start, and
        lifting a limit that may have been there before would be the worse mistake.
        """
        _check_cgroup(subject)
        for card in requested.cards:
            self._set(subject, card.uuid, card.memory_bytes)
        held = (
            limits.CardLimits(uuid=card.uuid, memory_bytes=card.memory_bytes)
            for card in requested.cards
        )
        return catalog.Applied(level=LEVEL, limits=limits.Limits(tuple(held)))

    def change(self, subject: catalog.Subject, requested: limits.Limits) -> catalog.Applied:
        """Set other limits; they hold at once, for the next allocation."""
        return self.apply(subject, requested)

    def release(self, subject: catalog.Subject, held: limits.Limits) -> None:
        """Lift the limits, in case the cgroup is used again; if it is gone, so are they."""
        if Path(subject.cgroup).is_dir():
            for card in held.cards:
                self._set(subject, card.uuid, NO_LIMIT)

    def _set(self, subject: catalog.Subject, uuid: str, hard_bytes: int) -> None:
        """No soft limit: one that is still set when its cgroup goes stays with the ancestors."""
        try:
            self._port.set_memory_limits(uuid, subject.cgroup, soft_bytes=0, hard_bytes=hard_bytes)
            actual = self._port.memory_limits(uuid, subject.cgroup)
        except errors.DeviceError as error:
            if hard_bytes == NO_LIMIT and error.reason == "not-found":
                return  # drivers forget a limit that is lifted
            raise _explained(error, uuid, subject) from error
        if (actual.soft_bytes, actual.hard_bytes) != (0, hard_bytes):
            requested = f"soft 0, hard {hard_bytes} bytes"
            read_back = f"soft {actual.soft_bytes}, hard {actual.hard_bytes} bytes"
            raise catalog.unmet(LEVEL, f"{subject.cgroup} on card {uuid}", requested, read_back)


def _check_cgroup(subject: catalog.Subject) -> None:
    if not subject.cgroup:
        raise errors.FenceError(
            f"driver: the cgroup of {subject.name} is not known",
            instead="start it in its own cgroup, and give the full path of that cgroup",
        )
    if not Path(subject.cgroup).is_dir():
        raise errors.FenceError(
            f"driver: cgroup {subject.cgroup} does not exist",
            instead="make the cgroup first, then set its limits, then start the program",
        )


_INSTEAD = {
    "no-permission": "set the limits as root",
    "not-supported": "use the level hook; cards in MIG mode cannot be limited",
    "function-not-found": f"install a driver of version {FIRST_VERSION} or newer",
    "not-found": "give the leaf cgroup of the tenant, in which its processes will run",
    "operating-system": "give the full path of a cgroup v2, under /sys/fs/cgroup",
    "invalid-argument": "request no more memory than the card has",
    "gpu-is-lost": "the card has fallen off the bus: reset it or reboot, and check `nvidia-smi`",
}


def _explained(error: errors.DeviceError, uuid: str, subject: catalog.Subject) -> errors.FenceError:
    return errors.FenceError(
        f"driver: cannot limit the memory of {subject.cgroup} on card {uuid}: {error.what}",
        instead=_INSTEAD.get(error.reason, error.instead or "use the level hook"),
    )
