"""Asking NVML, so that a refusal is a value or a DeviceError and never a surprise.

Drivers differ, and cards fall sick: what a card does not tell is ``None`` (``told``). What somebody
needs and cannot have is a DeviceError (``asked``), whose ``reason`` is NVML's name for it, such as
``not-supported``, ``no-permission`` or ``gpu-is-lost``.

``pynvml`` is imported by the modules of this package that ask, and by nobody else.
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


def asked(what: str, function: Callable[..., Any], *arguments: object) -> Any:
    """What a function answers; a DeviceError where it does not."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        raise explained(what, error) from error


def told(function: Callable[..., Any], *arguments: object) -> Any:
    """What a function tells, or None."""
    try:
        return function(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def ecc_errors(handle: Any, kind: int) -> int | None:
    """Errors of memory of one of NVML's kinds, since the card's last reset."""
    counted: int | None = told(
        pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, pynvml.NVML_VOLATILE_ECC
    )
    return counted


def explained(what: str, error: pynvml.NVMLError) -> errors.DeviceError:
    """NVML's error as one for people: what was asked, and what to do."""
    reason = _reasons().get(error.value, "unknown")
    return errors.DeviceError(
        reason, f"{what}: {error}", instead=_INSTEAD.get(reason, "see what `nvidia-smi` says")
    )


def text(found: str | bytes) -> str:
    """NVML's texts in structs are bytes, whatever a card wrote there."""
    return found.decode(errors="replace") if isinstance(found, bytes) else found


@functools.cache
def _reasons() -> dict[int, str]:
    """NVML's names by code, found among the thousands in its module when there is an error."""
    return {
        code: name.removeprefix("NVML_ERROR_").lower().replace("_", "-")
        for name, code in vars(pynvml).items()
        if name.startswith("NVML_ERROR_") and isinstance(code, int)
    }
