"""NVML as an onlooker uses it, for the programs of `client`; the standard library is enough."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_uint, c_uint64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.native.client import Sample, call, card, card_memory, made, total_memory, uuid
else:
    # Where it runs, the tests are no package.
    from client import Sample, call, card, card_memory, made, total_memory, uuid

NO_LIMIT = 2**64 - 1


class Rates(ctypes.Structure):
    """nvmlUtilization_t."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class Event(ctypes.Structure):
    """nvmlEventData_t."""

    _fields_ = (
        ("device", c_uint64),
        ("kind", c_uint64),
        ("data", c_uint64),
        ("instances", c_uint * 2),
    )


class Field(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        ("number", c_uint),
        ("scope", c_uint),
        ("times", c_uint64 * 2),
        ("kind", c_uint),
        ("answer", c_uint),
        ("value", c_uint64),
    )


class Limits(ctypes.Structure):
    """nvmlGetMemoryLimits_v1_t; the one for setting ends before what is used."""

    _fields_ = (
        ("cgroup", ctypes.c_char_p),
        ("soft", c_uint64),
        ("hard", c_uint64),
        ("used", c_uint64),
    )


def text(function: str, index: int | None = None) -> str:
    """A text that NVML tells of a card, or of the machine."""
    out = ctypes.create_string_buffer(96)
    call("nvmlInit_v2")
    call(function, *(() if index is None else (card(index),)), out, len(out))
    return out.value.decode()


def field(number: int, index: int) -> list[int]:
    """A field of a card: whether it is told, and what."""
    out = Field(number=number)
    call("nvmlDeviceGetFieldValues", card(index), 1, byref(out))
    return [out.answer, out.value & 0xFFFFFFFF]


def number(function: str, index: int, *more: object) -> int:
    """A number that NVML tells of a card."""
    out = c_uint64()
    call(function, card(index), *more, byref(out))
    return out.value


def busy_percent(index: int = 0) -> int:
    """How busy the card was of late."""
    rates = Rates()
    call("nvmlDeviceGetUtilizationRates", card(index), byref(rates))
    return int(rates.gpu)


def busy_percents(index: int = 0, since_us: int = 0) -> dict[str, int]:
    """How busy each process kept the card, of late or since a moment of the wall clock."""
    count, samples = c_uint(256), (Sample * 256)()
    name = "nvmlDeviceGetProcessUtilization"
    call(name, card(index), samples, byref(count), since_us)
    return {str(sample.pid): sample.percent[0] for sample in samples[: count.value]}


def listen(index: int, kinds: int) -> int:
    """A set of events: those kinds of one card, from now on."""
    call("nvmlInit_v2")
    events = made("nvmlEventSetCreate")
    call("nvmlDeviceRegisterEvents", card(index), kinds, events)
    return int(events)


def next_event(events: int, timeout_ms: int) -> tuple[bool, int, int]:
    """The next one: is it the first card's, what kind it is, and its data."""
    event = Event()
    call("nvmlEventSetWait_v2", events, byref(event), timeout_ms)
    return event.device == card(0), event.kind, event.data


def set_limits(index: int, cgroup: str, soft: int, hard: int) -> None:
    """Limit the memory that processes of a cgroup get of a card."""
    request = Limits(cgroup.encode(), soft, hard)
    call("nvmlDeviceSetMemoryLimits_v1", card(index), byref(request))


def limits(index: int, cgroup: str) -> tuple[int, int, int]:
    """The soft and the hard limit, and what is used."""
    answer = Limits(cgroup.encode())
    call("nvmlDeviceGetMemoryLimits_v1", card(index), byref(answer))
    return answer.soft, answer.hard, answer.used


def errors(index: int = 0) -> int:
    """Errors of memory that could not be corrected, ever."""
    uncorrected, ever = 1, 1
    return number("nvmlDeviceGetTotalEccErrors", index, uncorrected, ever)


Facts = tuple[str, str, int, int, int, int]  # name, identity, bytes, multiprocessors, capability
_ATTRIBUTES = (16, 75, 76)  # the last three of them, for cuDeviceGetAttribute
_CORES = 64  # of a multiprocessor


def facts_by_cuda(index: int) -> Facts:
    """A card as CUDA describes it."""
    name, identity = ctypes.create_string_buffer(96), (ctypes.c_ubyte * 16)()
    call("cuDeviceGetName", name, len(name), index)
    call("cuDeviceGetUuid_v2", identity, index)
    sms, *capability = (
        made("cuDeviceGetAttribute", which, index, kind=c_int) for which in _ATTRIBUTES
    )
    major, minor = capability
    return name.value.decode(), bytes(identity).hex(), total_memory(index), sms, major, minor


def facts_by_nvml(index: int) -> Facts:
    """The same as NVML does."""
    major, minor = c_int(), c_int()
    call("nvmlDeviceGetCudaComputeCapability", card(index), byref(major), byref(minor))
    name, identity = text("nvmlDeviceGetName", index), uuid(index)
    sms = number("nvmlDeviceGetNumGpuCores", index) // _CORES
    total = card_memory(index)["total"]
    plain = identity.removeprefix("GPU-").replace("-", "")
    return name, plain, total, sms, major.value, minor.value
