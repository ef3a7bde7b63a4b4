"""Fresh simulated machines: the environment in which a process meets cards that are not there.

The libraries are those of `python -m native`; they stand where the driver's stand, so what runs is
the product's own code. Each machine's state is a file of its own.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

from native import parts
from tests import leaving_out

LIBRARIES = parts.LIB / "simulated"
FENCE = parts.LIB / "libpartage.so"


def machine(folder: pathlib.Path, *, cards: str = "2x16GiB", **settings: str) -> dict[str, str]:
    """The environment of a process on a machine with these cards; settings as in its README."""
    for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
        if not (LIBRARIES / library).exists():
            leaving_out.leave_out("the simulated driver", "build it with `python -m native`")
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(LIBRARIES),
        "SIMCUDA_STATE": str(folder / "simulated-machine"),
        "SIMCUDA_CARDS": cards,
        **{f"SIMCUDA_{name.upper()}": value for name, value in settings.items()},
    }


def python(script: str, *arguments: object, environment: dict[str, str]) -> str:
    """Run a script of ours on the machine; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=pathlib.Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
