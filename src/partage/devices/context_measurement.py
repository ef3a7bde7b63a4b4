"""What a CUDA context costs on a card, measured.

A context takes hundreds of MiB for the driver's own purposes, more on larger cards, and only the
driver knows how much. The hook counts it against the tenant's quota, so it is measured once for
each model of card: a child process makes a context and nothing else, and NVML says what it has.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, cast

from partage.core import errors
from partage.devices import nvml

_HOLDER = Path(__file__).with_name("context_holder.py")
_READY = b"ready"


def context_bytes(driver: nvml.Nvml, uuid: str, *, timeout_s: float = 60) -> int | None:
    """What a context costs on a card; None if the driver does not tell.

    Under a foreign pid namespace NVML's process ids are not ours. Then the cost is that of the one
    process that came meanwhile, and None if there were several.
    """
    before = {process.pid for process in driver.processes(uuid)}
    with _context(uuid, timeout_s) as pid:
        after = driver.processes(uuid)
    ours = [process for process in after if process.pid == pid]
    new = ours or [process for process in after if process.pid not in before]
    return new[0].used_bytes if len(new) == 1 else None


def can_make_context(uuid: str, *, timeout_s: float = 60) -> bool:
    """Whether a program can use the card, as a child of ours tries."""
    try:
        with _context(uuid, timeout_s):
            return True
    except errors.DeviceError:
        return False


@contextlib.contextmanager
def _context(uuid: str, timeout_s: float) -> Iterator[int]:
    """A process with a context on the card; its process id."""
    with subprocess.Popen(
        [sys.executable, "-I", str(_HOLDER)],
        env=_plain(os.environ) | {"CUDA_VISIBLE_DEVICES": uuid},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as holder:
        try:
            _await(holder, uuid, timeout_s)
            yield holder.pid
        finally:
            holder.kill()


def _await(holder: subprocess.Popen[bytes], uuid: str, timeout_s: float) -> None:
    out, err = cast("IO[bytes]", holder.stdout), cast("IO[bytes]", holder.stderr)
    ready, _, _ = select.select([out], [], [], timeout_s)
    if not ready:
        raise _failed("timeout", uuid, f"it took longer than {timeout_s:g} s")
    if out.readline().strip() != _READY:
        lines = err.read().decode(errors="replace").strip().splitlines()
        raise _failed("no-context", uuid, lines[-1] if lines else "no message")


def _failed(reason: str, uuid: str, why: str) -> errors.DeviceError:
    return errors.DeviceError(
        reason,
        f"no CUDA context could be made on card {uuid}: {why}",
        instead="check that CUDA programs run on the card; until then, contexts are not counted",
    )


def _plain(environment: Mapping[str, str]) -> dict[str, str]:
    """Without fences: those change what a context costs, or what is seen of it."""
    return {
        name: text
        for name, text in environment.items()
        if name not in ("LD_PRELOAD", "PARTAGE_LIMITS") and not name.startswith("CUDA_MPS_")
    }
