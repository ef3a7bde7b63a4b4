"""Programs in C that try out the driver area by area: clients/sim_memory.c and its like.

An area checks what it does itself, and that it gave back what it took. The same programs run once
more with sanitizers, all areas at a time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from native import compilers, libraries
from tests.native import fenced

TIMEOUT_S = 60
PROGRAMS = (
    "sim_captures.c",
    "sim_code.c",
    "sim_copies.c",
    "sim_graphs.c",
    "sim_memory.c",
    "sim_nvml.c",
    "sim_streams.c",
)

Area = Callable[[str], None]


def machine(folder: Path, driver: Path = fenced.LIBRARIES) -> dict[str, str]:
    """The environment of a fresh machine with two small cards."""
    return {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(driver),
        "SIMCUDA_STATE": str(folder / "machine"),
        "SIMCUDA_CARDS": "2x1GiB",
        "SIMCUDA_CONTEXT_MIB": "64",
    }


def compiled(target: Path, source: str, driver: Path = fenced.LIBRARIES, *flags: str) -> Path:
    """A program of areas, linked with both libraries."""
    includes = [f"-isystem{folder}" for folder in libraries.header_folders()]
    sources = [fenced.CLIENTS / source, driver / "libcuda.so.1", driver / "libnvidia-ml.so.1"]
    return compilers.system(*includes, *flags).link(target, sources, "-pthread")


def cubin(target: Path) -> Path:
    """A cubin by NVIDIA's own compiler, which needs no card."""
    command = [sys.executable, "-m", "tests.native.clients.sim_cubin", str(target)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S, cwd=libraries.SOURCES.parent)
    return target


def run(program: Path, environment: Mapping[str, str], *names: str) -> list[str]:
    """Run these areas, or all of them, to the end without a complaint; which they were."""
    done = subprocess.run(
        [program, *names],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def fixture(source: str) -> Any:  # pytest's own type is not public
    """Give tests a function that runs an area of that program, on a machine of its own."""

    @pytest.fixture(name="area")
    def area(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Area:
        program = tmp_path_factory.getbasetemp() / Path(source).stem
        if not program.exists():
            compiled(program, source)

        def try_out(name: str) -> None:
            assert run(program, machine(tmp_path), name) == [name]

        return try_out

    return area
