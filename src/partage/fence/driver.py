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
from partage.fence import levels, limits

LEVEL = levels.Level.DRIVER
FIRST_VERSION = 615
NO_LIMIT = limits.NO_QUOTA  # NVML_DEVICE_MEMORY_LIMIT_MAX


class Found(Protocol):
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

    def memory_limits(self, uuid: str, cgroup: str) -> Found:
        """Read both back."""


class Driver:
    """Fences that the driver keeps."""

    def __init__(self, port: Port) -> None:
        self._port = port

    @property
    def level(self) -> levels.Level:
        return LEVEL

    def apply(self, subject: levels.Subject, asked: limits.Limits) -> levels.Applied:
        """Set the limits of the tenant's cgroup on all its cards.

        Where that fails on one card the limits of the others stay: the tenant must not start, and
        lifting a limit that may have been there before would be the worse mistake.
        """
        _check_cgroup(subject)
        for card in asked.cards:
            self._set(subject, card.uuid, card.memory_bytes)
        held = (
            limits.CardLimits(uuid=card.uuid, memory_bytes=card.memory_bytes)
            for card in asked.cards
        )
        return levels.Applied(level=LEVEL, limits=limits.Limits(tuple(held)))

    def change(self, subject: levels.Subject, asked: limits.Limits) -> levels.Applied:
        """Set other limits; they hold at once, for the next allocation."""
        return self.apply(subject, asked)

    def release(self, subject: levels.Subject, held: limits.Limits) -> None:
        """Lift the limits, in case the cgroup is used again; if it is gone, so are they."""
        if Path(subject.cgroup).is_dir():
            for card in held.cards:
                self._set(subject, card.uuid, NO_LIMIT)

    def _set(self, subject: levels.Subject, uuid: str, hard_bytes: int) -> None:
        """No soft limit: one that is still set when its cgroup goes stays with the ancestors."""
        try:
            self._port.set_memory_limits(uuid, subject.cgroup, soft_bytes=0, hard_bytes=hard_bytes)
            found = self._port.memory_limits(uuid, subject.cgroup)
        except errors.DeviceError as error:
            if hard_bytes == NO_LIMIT and error.reason == "not-found":
                return  # drivers forget a limit that is lifted
            raise _explained(error, uuid, subject) from error
        if (found.soft_bytes, found.hard_bytes) != (0, hard_bytes):
            asked = f"soft 0, hard {hard_bytes} bytes"
            read = f"soft {found.soft_bytes}, hard {found.hard_bytes} bytes"
            raise levels.unmet(LEVEL, f"{subject.cgroup} on card {uuid}", asked, read)


def _check_cgroup(subject: levels.Subject) -> None:
    if not subject.cgroup:
        raise errors.FenceError(
            f"driver: the cgroup of {subject.name} is not known",
            instead="start it in a cgroup of its own, and name that one's full path",
        )
    if not Path(subject.cgroup).is_dir():
        raise errors.FenceError(
            f"driver: there is no cgroup {subject.cgroup}",
            instead="make the cgroup before its limits, and the limits before the program starts",
        )


_INSTEAD = {
    "no-permission": "set limits as root",
    "not-supported": "use the level mps or hook; cards in MIG mode cannot be limited",
    "function-not-found": f"install a driver of version {FIRST_VERSION} or newer",
    "not-found": "name the leaf of the tenant's cgroups, in which its processes will be",
    "operating-system": "name the full path of a cgroup of version 2, under /sys/fs/cgroup",
    "invalid-argument": "ask for no more memory than the card has",
    "gpu-is-lost": "the card has fallen off the bus: see `nvidia-smi`, reset it or reboot",
}


def _explained(error: errors.DeviceError, uuid: str, subject: levels.Subject) -> errors.FenceError:
    return errors.FenceError(
        f"driver: no memory limit for {subject.cgroup} on card {uuid}: {error.what}",
        instead=_INSTEAD.get(error.reason, error.instead or "use the level mps or hook"),
    )
