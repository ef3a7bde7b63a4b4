"""The driver of a node: waited for, asked which cards there are, and what a context costs on them.

A node may get its driver after its agent, from a DaemonSet that builds it for minutes. Until then
there is nothing to serve, and one line says so.

A driver in trouble may never return from a call. So it is asked in threads of their own, for which
nothing waits in the end, and what is not answered in time is not known.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from partage.agent import reports
from partage.core import errors
from partage.devices import context_measurement, nvml

log = logging.getLogger(__name__)

_AGAIN_S = 5.0
_FRESH_S = 0.5  # two who ask for measurements within this time get the same
_PATIENCE_S = 2.5  # for an answer that takes milliseconds; `partage top` gives us 3 s
_COST_S = 90.0  # for a context, which is given 60 s by itself

T = TypeVar("T")


async def present() -> str:
    """Wait for a driver with cards; its version."""
    said = ""
    while True:
        try:
            version, devices = await _patiently(_asked)
        except errors.DeviceError as error:
            why = str(error)
        else:
            if any(device.card for device in devices):
                return version
            why = "the driver answers, but it has no usable card"
        if why != said:
            log.warning("%s; waiting until there are cards", why)
            said = why
        await asyncio.sleep(_AGAIN_S)


async def devices() -> tuple[nvml.Device, ...]:
    """The cards as the driver tells of them now; none if it does not."""
    try:
        return (await apart(_asked))[1]
    except errors.DeviceError as error:
        log.warning("%s", error)
        return ()


async def context_costs(devices: Iterable[nvml.Device]) -> dict[str, int]:
    """What a context costs, by uuid; measured once for each model, since that takes a process.

    A card that is full has no room for a context. Then another one of its model is tried.
    """
    models: dict[tuple[str | None, int | None], int] = {}
    usable = {d.uuid: (d.model, d.memory_mib) for d in devices if d.uuid and not d.problem}
    for uuid, model in usable.items():
        cost = None if model in models else await _cost(uuid)
        if cost is not None:
            models[model] = cost
    return {uuid: models[model] for uuid, model in usable.items() if model in models}


async def apart(call: Callable[[], T]) -> T:
    """Call it in a thread of its own, which ends with the process if not before."""
    answer: concurrent.futures.Future[T] = concurrent.futures.Future()
    threading.Thread(target=_answer, args=(answer, call), name="driver", daemon=True).start()
    return await asyncio.wrap_future(answer)


class Readings:
    """What the driver measures, not asked more often than need be."""

    def __init__(self) -> None:
        self._taken_at = -_FRESH_S
        self._last: dict[str, reports.Measured] = {}
        self._asking: asyncio.Task[None] | None = None

    async def now(self) -> dict[str, reports.Measured]:
        """By uuid; a card that tells nothing is not there, and none is if the driver hangs."""
        if self._asking is None and time.monotonic() - self._taken_at >= _FRESH_S:
            self._asking = asyncio.create_task(self._ask())
        if self._asking is not None:  # one question at a time, however many ask
            await asyncio.wait((self._asking,), timeout=_PATIENCE_S)
        return self._last if self._asking is None else {}

    async def _ask(self) -> None:
        try:
            self._last = await apart(_measured)
        finally:
            self._taken_at = time.monotonic()
            self._asking = None


async def _patiently(call: Callable[[], T]) -> T:
    """As long as it takes; that it takes long is said."""
    asking = asyncio.create_task(apart(call))
    done, _ = await asyncio.wait((asking,), timeout=_PATIENCE_S)
    if not done:
        log.warning("the driver has not answered for %g s; waiting until it does", _PATIENCE_S)
    return await asking


async def _cost(uuid: str) -> int | None:
    try:
        async with asyncio.timeout(_COST_S):
            return await apart(lambda: _context_bytes(uuid))
    except TimeoutError:
        log.warning(
            "card %s: creating a context did not end in time, so contexts are counted as nothing",
            uuid,
        )
        return None


def _answer(answer: concurrent.futures.Future[T], call: Callable[[], T]) -> None:
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result(call())
    except Exception as error:  # noqa: BLE001 (the caller gets it)
        answer.set_exception(error)


def _measured() -> dict[str, reports.Measured]:
    try:
        with nvml.Nvml() as driver:
            return reports.measured(driver.readings())
    except errors.DeviceError:
        return {}  # everybody is told by the watch of health


def _asked() -> tuple[str, tuple[nvml.Device, ...]]:
    with nvml.Nvml() as driver:
        return driver.driver_version(), driver.devices()


def _context_bytes(uuid: str) -> int | None:
    try:
        with nvml.Nvml() as driver:
            cost = context_measurement.context_bytes(driver, uuid)
    except errors.DeviceError as error:
        log.warning(
            "the cost of a context is unknown, so contexts are counted as nothing: %s", error
        )
        return None
    if cost is None:
        log.warning("card %s: the driver does not report what a context costs", uuid)
    return cost
