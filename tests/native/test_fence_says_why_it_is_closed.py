"""A fence that cannot work says so to people: one line, once, and only where CUDA is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native import fenced
from tests.native.fenced import NOT_PERMITTED

REFUSED = "call('cuInit', 0); context()"


@pytest.fixture
def closed(tenant: fenced.Tenant) -> fenced.Tenant:
    """A tenant whose limits are gone."""
    (tenant.folder / "limits").rename(tenant.folder / "elsewhere")
    return tenant


def refused(process: fenced.Process) -> str:
    """What a program writes that uses CUDA and is refused it."""
    assert process.code(REFUSED) == NOT_PERMITTED
    assert process.code("context()") == NOT_PERMITTED
    return process.end()


def test_the_line_has_the_reason_and_what_to_do(closed: fenced.Tenant) -> None:
    """Most programs have a text of their own for the error, which says nothing of it."""
    words = refused(closed.start())
    assert words.startswith(f"Partage: {closed.folder}/limits cannot be read, so CUDA gives")
    assert "`partage run`" in words
    assert "`partage doctor`" in words
    assert "PARTAGE_QUIET=1" in words
    assert words.count("\n") == 1


def test_it_is_told_by_the_first_process_of_the_tenant(closed: fenced.Tenant) -> None:
    """However they are related."""
    first, second = closed.start(), closed.start()
    assert first.code(REFUSED) == second.code(REFUSED) == NOT_PERMITTED
    assert first.end().count("\n") == 1
    assert second.end() == ""


def test_without_a_folder_it_is_told_by_the_first_of_a_family(
    machine: fenced.Machine, tmp_path: Path
) -> None:
    """The mark is in the environment then, which children inherit."""
    environment = {"LD_PRELOAD": str(fenced.FENCE), "PARTAGE_LIMITS": str(tmp_path / "limits")}
    process = machine.start(environment)
    assert process.code(REFUSED) == NOT_PERMITTED
    process("import subprocess, sys")
    child = (
        "subprocess.run([sys.executable, '-I', '-S', sys.argv[0]], input=json.dumps("
        f"{REFUSED!r}).encode() + b'\\n', capture_output=True)"
    )
    assert process(f"{child}.stdout.decode()").startswith('{"refused": 800')
    assert process(f"{child}.stderr.decode()") == ""
    assert process.end().count("\n") == 1
    assert not list(tmp_path.glob("PARTAGE*"))


def test_it_can_be_silenced(closed: fenced.Tenant) -> None:
    """By a variable; the error is the same."""
    assert refused(closed.start(PARTAGE_QUIET="1")) == ""


@pytest.mark.parametrize("line", ["None", "card_memory()", "library('libcuda.so.1')"])
def test_who_uses_no_cuda_hears_nothing(closed: fenced.Tenant, line: str) -> None:
    """Nor does who only looks, or only loads the driver."""
    process = closed.start()
    process(line)
    assert process.end() == ""


def test_stderr_that_nobody_reads_neither_ends_nor_stops_the_program(
    closed: fenced.Tenant,
) -> None:
    """A pipe whose reader is gone, a pipe that is full, and none at all."""
    gone, full = os.pipe(), os.pipe()
    os.close(gone[0])
    os.set_blocking(full[1], False)
    while True:
        try:
            os.write(full[1], b" " * 4096)
        except BlockingIOError:
            break
    os.set_blocking(full[1], True)
    for stderr in (gone[1], full[1], None):
        (closed.folder / "PARTAGE_TOLD_CLOSED").unlink(missing_ok=True)
        program = (
            "import ctypes, signal, os; signal.signal(signal.SIGPIPE, signal.SIG_DFL);"
            + ("os.close(2);" if stderr is None else "")
            + "driver = ctypes.CDLL('libcuda.so.1'); driver.cuInit(0);"
            "print(driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_uint64()), 0))"
        )
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-c", program],
            env=closed.machine.environment | closed.environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            timeout=fenced.TIMEOUT_S,
            check=False,
        )
        assert (ran.returncode, ran.stdout) == (0, b"800\n")
    for descriptor in (gone[1], *full):
        os.close(descriptor)
