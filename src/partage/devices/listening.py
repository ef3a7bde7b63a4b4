"""Listening to NVML: its events, and a look at every card.

One Listener is one opening of NVML. It registers each card for events as soon as the card answers,
and keeps which handle is whose: a card that has fallen off the bus no longer tells its name, and
the event that says so must still find it.

A library that was open when a card vanished may never see it again. Whoever has a lost card closes
the Listener and opens another.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable
from typing import Any

import msgspec
import pynvml

from partage.core import errors
from partage.devices import asking, judging

# Errors of memory that were corrected are counted (nvml.Reading), and make no card sick.
_WANTED = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError


class Event(msgspec.Struct, frozen=True):
    """Something that NVML told once."""

    uuid: str | None  # None: of no card in particular, so of all
    xid: int | None  # None: an error of memory that could not be corrected


class Listener:
    """NVML while somebody listens; DeviceErrors are those of the driver as a whole."""

    def __init__(self) -> None:
        asking.asked("NVML", pynvml.nvmlInit)
        self._events = asking.told(pynvml.nvmlEventSetCreate)  # None: cards are only looked at
        self._names: dict[int, str] = {}  # of those whose events are told, by their handles

    def close(self) -> None:
        """Let go of NVML; it may be gone already."""
        if self._events is not None:
            asking.told(pynvml.nvmlEventSetFree, self._events)
        asking.told(pynvml.nvmlShutdown)

    @property
    def hears(self) -> bool:
        """Whether any card tells events; waiting for the others would not even wait."""
        return bool(self._names)

    def wait(self, timeout_s: float) -> Event | None:
        """The next event, or None if there is none in that time."""
        try:
            told = asking.asked(
                "NVML", pynvml.nvmlEventSetWait, self._events, max(1, int(timeout_s * 1000))
            )
        except errors.DeviceError as error:
            if error.reason == "timeout":
                return None
            raise
        is_xid = told.eventType == pynvml.nvmlEventTypeXidCriticalError
        return Event(self._names.get(_address(told.device)), told.eventData if is_xid else None)

    def looks(self, known: Iterable[str]) -> dict[str, judging.Look]:
        """A look at every card: those that are there, and those that once were."""
        handles = dict(self._found())
        looks = {uuid: self._look(uuid, handle) for uuid, handle in handles.items()}
        return looks | {uuid: _missing(uuid) for uuid in known if uuid not in handles}

    def _found(self) -> Iterable[tuple[str, Any]]:
        for index in range(asking.asked("the driver", pynvml.nvmlDeviceGetCount)):
            handle = asking.told(pynvml.nvmlDeviceGetHandleByIndex, index)
            uuid = asking.told(pynvml.nvmlDeviceGetUUID, handle) if handle else None
            if uuid is not None:
                yield uuid, handle

    def _look(self, uuid: str, handle: Any) -> judging.Look:
        self._listen_to(uuid, handle)  # before the look: what comes in between is told
        try:
            asking.asked("NVML", pynvml.nvmlDeviceGetMemoryInfo, handle)
        except errors.DeviceError as error:
            if error.reason != "not-supported":  # that, too, is an answer
                return _unanswered(error)
        rows = asking.told(pynvml.nvmlDeviceGetRemappedRows, handle)
        return judging.Look(
            action=_action(handle),
            uncorrected=asking.ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            rows_pending=bool(rows and rows[2]),
            rows_failed=bool(rows and rows[3]),
        )

    def _listen_to(self, uuid: str, handle: Any) -> None:
        address = _address(handle)
        if self._events is None or address in self._names:
            return
        kinds = _WANTED & (asking.told(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0)
        with contextlib.suppress(pynvml.NVMLError):  # then it is looked at, and not heard
            if kinds:
                pynvml.nvmlDeviceRegisterEvents(handle, kinds, self._events)
                self._names[address] = uuid


def ailments() -> dict[str, str]:
    """Why cards are not well, by uuid, as one look at them tells; NVML must be open.

    What they went through before is not known, only what they still suffer from.
    """
    listener = Listener()
    try:
        looks = listener.looks(())
    finally:
        listener.close()
    fresh, patience = judging.Verdict(), judging.Patience()
    reasons = {
        uuid: judging.looked(fresh, look, 0.0, patience).reason for uuid, look in looks.items()
    }
    return {uuid: reason for uuid, reason in reasons.items() if reason}


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _missing(uuid: str) -> judging.Look:
    """Of a card that is known and was not found: why."""
    try:
        asking.asked("NVML", pynvml.nvmlDeviceGetHandleByUUID, uuid)
    except errors.DeviceError as error:
        return _unanswered(error)
    return judging.Look(problem="it does not tell its name")


def _unanswered(error: errors.DeviceError) -> judging.Look:
    return judging.Look(problem=error.what, lost=error.reason in asking.LOST)


def _action(handle: Any) -> int | None:
    """What it takes to recover the card; drivers before R565 do not know."""
    field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    values = asking.told(pynvml.nvmlDeviceGetFieldValues, handle, [field])
    if not values or values[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(values[0].value.uiVal)
