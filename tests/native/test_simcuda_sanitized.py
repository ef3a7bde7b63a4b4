"""The simulated driver, built with sanitizers, does nothing that C leaves undefined."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from native import compilers, libraries
from tests import leaving_out
from tests.native import driver_areas, fenced

# Unoptimised, as that builds in a quarter of the time.
FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O0")
# Calls every function of both libraries with nothing, takes memory in every way, loads a cubin.
MANY_CALLS = """
import client, nvml_onlooker, sys, ways
from tests.native.test_simcuda_symbols import CUDA, NVML, functions

names = [*functions(CUDA), *functions(NVML)]
ways.answers(*names)
client.context()
ways.take_all()
module = client.made("cuModuleLoad", sys.argv[1].encode())
client.made("cuModuleGetFunction", module, b"first")
ways.answers(*names)
client.context()
client.processes()
nvml_onlooker.busy_percent()
nvml_onlooker.listen(0, 8)
ways.answers(*names)
"""


def compiler() -> compilers.Compiler:
    """The system's, with sanitizers."""
    return compilers.system(*FLAGS)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated driver with sanitizers."""
    folder = tmp_path_factory.mktemp("sanitized")
    (folder / "probe.c").write_text("int main(void) { return 0; }\n")
    try:
        compiler().link(folder / "probe", [folder / "probe.c"])
    except compilers.CannotBuild as error:
        leaving_out.leave_out("a compiler with sanitizers", error)
    libraries.simcuda(folder, compiler())
    return folder


@pytest.mark.parametrize("source", driver_areas.PROGRAMS)
def test_every_area_is_clean(driver: Path, tmp_path: Path, source: str) -> None:
    """Nothing is read or written out of bounds or after it was freed, nothing leaks."""
    program = driver_areas.compiled(tmp_path / "program", source, driver, *FLAGS)
    assert driver_areas.run(program, driver_areas.machine(tmp_path, driver))


def sanitizer() -> str:
    """The sanitizer's own library, which a program that was built without has to load first."""
    command = [*compiler().command, "-print-file-name=libasan.so"]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    path = Path(done.stdout.strip())
    if not path.exists():
        leaving_out.leave_out("the sanitizer as a library", "the compiler has none")
    return str(path)


def test_no_function_does_harm_without_arguments(driver: Path, tmp_path: Path) -> None:
    """Nor is any way to take memory, in a program that ends without cleaning up."""
    environment = {
        **driver_areas.machine(tmp_path, driver),
        "LD_PRELOAD": sanitizer(),
        "ASAN_OPTIONS": "detect_leaks=0",  # those of Python would be told too
        "PYTHONPATH": f"{fenced.HERE}:{libraries.SOURCES.parent}",
    }
    done = subprocess.run(
        [sys.executable, "-c", MANY_CALLS, driver_areas.cubin(tmp_path / "code.cubin")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=driver_areas.TIMEOUT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
