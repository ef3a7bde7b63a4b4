"""Calls of NVML, so that a refusal is a value or a DeviceError and never a surprise.

Drivers differ, and cards fail: what a card does not tell is ``None`` (``optional``). What a caller
needs and cannot have is a DeviceError (``required``), whose ``reason`` is NVML's name for it, such
as ``not-supported``, ``no-permission`` or ``gpu-is-lost``.

``pynvml`` is imported only by the modules of this package that call it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pynvml

from partage.core import errors

LOST = frozenset({"gpu-is-lost", "not-found", "gpu-not-found"})  # reasons: the card is not there

_INSTEAD = {
    "library-not-found": "install NVIDIA's driver, which has libnvidia-ml.so.1",
    "driver-not-loaded": "load the driver: `modprobe nvidia`, or reboot after its installation",
    "lib-rm-version-mismatch": "reboot: the driver was updated and the old one is still loaded",
    "gpu-is-lost": "reset the card or reboot: it has fallen off the bus",
    "no-permission": "do it as root",
}


def required(what: str, function: Callable[..., Any], *arguments: object) -> Any:
    """What a function answers; a DeviceError if it does not."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise explained(what, error) from error


def optional(function: Callable[..., Any], *arguments: object) -> Any:
    """What a function answers, or None."""
    try:
        return function(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def ecc_errors(handle: Any, kind: int) -> int | None:
    """Memory errors of one of NVML's kinds, since the card's last reset."""
    counted: int | None = optional(
        pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, pynvml.NVML_VOLATILE_ECC
    )
    return counted


def explained(what: str, error: pynvml.NVMLError) -> errors.DeviceError:
    """NVML's error as one for people: what was asked, and what to do."""
    reason = _reasons().get(error.value, "unknown")
    return errors.DeviceError(
        reason, f"{what}: {error}", instead=_INSTEAD.get(reason, "check `nvidia-smi`")
    )


def text(value: str | bytes) -> str:
    """NVML's texts in structs are bytes, whatever a card wrote there."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


@functools.cache
def _reasons() -> dict[int, str]:
    """NVML's names by code, found among the thousands in its module when there is an error."""
    return {
        code: name.removeprefix("NVML_ERROR_").lower().replace("_", "-")
        for name, code in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") and isinstance(code, int)
    }
