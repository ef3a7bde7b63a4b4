"""NVML's events, and a look at every card.

One Listener is one opening of NVML. It registers each card for events as soon as the card answers,
and keeps which handle is whose: a card that has fallen off the bus no longer tells its name, and
the event that says so must still find it.

A library that was open when a card vanished may never see it again. When a card is lost, close the
Listener and open another.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable
from typing import Any

import msgspec
import pynvml

from partage.core import errors
from partage.devices import health_rules, nvml_calls

# Memory errors that were corrected are counted (nvml.Reading), and make no card unhealthy.
_WANTED = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError


class Event(msgspec.Struct, frozen=True):
    """Something that NVML told once."""

    uuid: str | None  # None: of no card in particular, so of all
    xid: int | None  # None: a memory error that could not be corrected


class Listener:
    """NVML while somebody listens; DeviceErrors are those of the driver as a whole."""

    def __init__(self) -> None:
        nvml_calls.required("NVML", pynvml.nvmlInit)
        # None: there are no events, and cards are only looked at.
        self._events = nvml_calls.optional(pynvml.nvmlEventSetCreate)
        self._names: dict[int, str] = {}  # of those whose events are told, by their handles

    def close(self) -> None:
        """Let go of NVML; it may be gone already."""
        if self._events is not None:
            nvml_calls.optional(pynvml.nvmlEventSetFree, self._events)
        nvml_calls.optional(pynvml.nvmlShutdown)

    @property
    def hears(self) -> bool:
        """Whether any card sends events; without any, NVML's wait returns at once."""
        return bool(self._names)

    def wait(self, timeout_s: float) -> Event | None:
        """The next event, or None if there is none in that time."""
        try:
            event = nvml_calls.required(
                "NVML", pynvml.nvmlEventSetWait, self._events, max(1, int(timeout_s * 1000))
            )
        except errors.DeviceError as error:
            if error.reason == "timeout":
                return None
            raise
        is_xid = event.eventType == pynvml.nvmlEventTypeXidCriticalError
        return Event(self._names.get(_address(event.device)), event.eventData if is_xid else None)

    def looks(self, known_uuids: Iterable[str]) -> dict[str, health_rules.Look]:
        """A look at every card: those that are there, and those that once were."""
        handles = dict(self._handles())
        looks = {uuid: self._look(uuid, handle) for uuid, handle in handles.items()}
        return looks | {uuid: _missing(uuid) for uuid in known_uuids if uuid not in handles}

    def _handles(self) -> Iterable[tuple[str, Any]]:
        for index in range(nvml_calls.required("the driver", pynvml.nvmlDeviceGetCount)):
            handle = nvml_calls.optional(pynvml.nvmlDeviceGetHandleByIndex, index)
            uuid = nvml_calls.optional(pynvml.nvmlDeviceGetUUID, handle) if handle else None
            if uuid is not None:
                yield uuid, handle

    def _look(self, uuid: str, handle: Any) -> health_rules.Look:
        self._listen_to(uuid, handle)  # before the look: what comes in between is told
        try:
            nvml_calls.required("NVML", pynvml.nvmlDeviceGetMemoryInfo, handle)
        except errors.DeviceError as error:
            if error.reason != "not-supported":  # that, too, is an answer
                return _unanswered(error)
        rows = nvml_calls.optional(pynvml.nvmlDeviceGetRemappedRows, handle)
        return health_rules.Look(
            action=_action(handle),
            uncorrected=nvml_calls.ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            rows_pending=bool(rows and rows[2]),
            rows_failed=bool(rows and rows[3]),
        )

    def _listen_to(self, uuid: str, handle: Any) -> None:
        address = _address(handle)
        if self._events is None or address in self._names:
            return
        kinds = _WANTED & (
            nvml_calls.optional(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
        )
        with contextlib.suppress(pynvml.NVMLError):  # then it is looked at, and not heard
            if kinds:
                pynvml.nvmlDeviceRegisterEvents(handle, kinds, self._events)
                self._names[address] = uuid


def problems() -> dict[str, str]:
    """Why cards are unhealthy, by uuid, as one look at them tells; NVML must be open.

    What happened to them before is not known, only what still shows.
    """
    listener = Listener()
    try:
        looks = listener.looks(())
    finally:
        listener.close()
    fresh, patience = health_rules.Verdict(), health_rules.Patience()
    reasons = {
        uuid: health_rules.looked(fresh, look, 0.0, patience).reason for uuid, look in looks.items()
    }
    return {uuid: reason for uuid, reason in reasons.items() if reason}


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _missing(uuid: str) -> health_rules.Look:
    """Of a card that is known and was not found: why."""
    try:
        nvml_calls.required("NVML", pynvml.nvmlDeviceGetHandleByUUID, uuid)
    except errors.DeviceError as error:
        return _unanswered(error)
    return health_rules.Look(problem="the card does not tell its uuid")


def _unanswered(error: errors.DeviceError) -> health_rules.Look:
    return health_rules.Look(problem=error.what, lost=error.reason in nvml_calls.LOST)


def _action(handle: Any) -> int | None:
    """What it takes to recover the card; drivers before R565 do not know."""
    field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    values = nvml_calls.optional(pynvml.nvmlDeviceGetFieldValues, handle, [field])
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)
