"""Taichi, which opens the driver from a library that is bound to its own (RTLD_DEEPBIND).

Its runtime takes memory for itself, and keeps what it has taken in pools; so what it holds is for
the accounts to say, and they are looked at while it holds it.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from tests.native.clients import client_reports
from tests.native.clients.client_reports import FITS, TOO_MUCH

FLOAT_BYTES = 4


def field(ti: Any, size_bytes: int) -> Any:
    """A field of that size on the card, filled by a kernel that Taichi compiles."""
    made = ti.field(ti.f32, shape=size_bytes // FLOAT_BYTES)
    made.fill(1.0)
    ti.sync()
    return made


def main() -> None:
    """Take, be refused, and go on."""
    report = os.dup(1)
    os.dup2(2, 1)  # Taichi writes there, from its first moment
    ti = importlib.import_module("taichi")
    ti.init(arch=ti.cuda, offline_cache=False)
    kept = field(ti, FITS)
    refused = client_reports.refused(lambda: ti.ndarray(ti.f32, shape=TOO_MUCH // FLOAT_BYTES))
    after = field(ti, 1 << 20)
    holds = kept.shape == (FITS // FLOAT_BYTES,) and after.shape == ((1 << 20) // FLOAT_BYTES,)
    sys.stdout = os.fdopen(report, "w")
    client_reports.tell(on=str(ti.cfg.arch), refused=refused, holds=holds)


if __name__ == "__main__":
    main()
