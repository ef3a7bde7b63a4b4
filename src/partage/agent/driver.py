"""The driver of a node: waited for, asked which cards there are, and what a context costs on them.

A node may get its driver after its agent, from a DaemonSet that builds it for minutes. Until then
there is nothing to serve, and one line says so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from partage.agent import reporting
from partage.core import errors
from partage.devices import measuring, nvml

log = logging.getLogger(__name__)

_AGAIN_S = 5.0
_FRESH_S = 0.5  # two who ask for measurements within this time get the same


async def present() -> str:
    """Wait for a driver with cards; its version."""
    said = ""
    while True:
        try:
            version, found = await asyncio.to_thread(_asked)
        except errors.DeviceError as error:
            why = str(error)
        else:
            if any(device.card for device in found):
                return version
            why = "the driver answers, and has no card that could be used"
        if why != said:
            log.warning("%s; waiting until there are cards", why)
            said = why
        await asyncio.sleep(_AGAIN_S)


async def devices() -> tuple[nvml.Device, ...]:
    """The cards as the driver tells of them now; none if it does not."""
    try:
        return (await asyncio.to_thread(_asked))[1]
    except errors.DeviceError as error:
        log.warning("%s", error)
        return ()


async def context_costs(found: Iterable[nvml.Device]) -> dict[str, int]:
    """What a context costs, by uuid; measured once for each model, since that takes a process."""
    costs: dict[str, int] = {}
    models: dict[tuple[str | None, int | None], int | None] = {}
    for device in found:
        if device.uuid is None or device.problem:
            continue
        model = (device.model, device.memory_mib)
        if model not in models:
            models[model] = await asyncio.to_thread(_context_bytes, device.uuid)
        cost = models[model]
        if cost is not None:
            costs[device.uuid] = cost
    return costs


class Readings:
    """What the driver measures, not asked more often than need be."""

    def __init__(self) -> None:
        self._taken_at = -_FRESH_S
        self._last: dict[str, reporting.Measured] = {}

    def now(self) -> dict[str, reporting.Measured]:
        """By uuid; a card that tells nothing is not there."""
        if time.monotonic() - self._taken_at >= _FRESH_S:
            try:
                with nvml.Nvml() as driver:
                    self._last = reporting.measured(driver.readings())
            except errors.DeviceError:
                self._last = {}  # everybody is told by the watch of health
            self._taken_at = time.monotonic()
        return self._last


def _asked() -> tuple[str, tuple[nvml.Device, ...]]:
    with nvml.Nvml() as driver:
        return driver.driver_version(), driver.devices()


def _context_bytes(uuid: str) -> int | None:
    try:
        with nvml.Nvml() as driver:
            cost = measuring.context_bytes(driver, uuid)
    except errors.DeviceError as error:
        log.warning("what a context costs is not known, so contexts count nothing: %s", error)
        return None
    if cost is None:
        log.warning("card %s: the driver does not tell what a context costs", uuid)
    return cost
