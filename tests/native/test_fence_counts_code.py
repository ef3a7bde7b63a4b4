"""Code takes memory: its image, and variables that have no bytes in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.native import fenced
from tests.native.fenced import GIB, MIB

PTX = ".version 8.0\n.target sm_80\n.address_size 64\n{}\n.visible .entry f() {{ ret; }}\n"
VARIABLES = {
    "bytes": ".global .align 4 .b8 big[{}];",
    "words": ".visible .global .align 4 .u32 big[{}];",
    "rows": ".global .align 8 .f64 big[{}][2];",
    "after a semicolon": ".global .b8 a[4];.global .align 4 .b8 big[{}];",
    "after a comment": "/**/.global .align 4 .b8 big[{}];",
    "after a carriage return": ".global .b8 a[4];\r.global .align 4 .b8 big[{}];",
    "as an expression": ".global .align 4 .b8 big[{}*1];",
    "pairs": ".global .align 8 .v2 .b32 big[{}];",
}
LOAD_FILES = (
    "'cuModuleLoad', byref(c_uint64()), {!r}",
    "'cuLibraryLoadFromFile', byref(c_uint64()), {!r}, 0, 0, 0, 0, 0, 0",
)
FILES = {
    "not there": None,
    "empty": b"",
    "nonsense": b"nonsense",
    "an ELF file that is cut off": b"\x7fELF" + b"\xff" * 80,
}
LOAD_LIBRARY = "lib = made('cuLibraryLoadData', {!r}.encode(), 0, 0, 0, 0, 0, 0)"


def image(name: str, count: int) -> str:
    """PTX with one large variable."""
    return PTX.format(VARIABLES[name].format(count))


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_larger_than_the_quota_is_refused(process: fenced.Process, name: str) -> None:
    """It begins as zeros, so the image itself is small."""
    load = f"made('cuModuleLoadData', {image(name, 2 * GIB)!r}.encode())"
    assert process.code(load) == fenced.OUT_OF_MEMORY


def test_variables_count_as_what_they_take(tenant: fenced.Tenant, process: fenced.Process) -> None:
    """And are given back with the module."""
    before = tenant.counted()
    process(f"m = made('cuModuleLoadData', {image('bytes', 100 * MIB)!r}.encode())")
    assert tenant.counted() == tenant.machine.truth()
    assert tenant.counted()[process.pid] >= before[process.pid] + 100 * MIB
    process("call('cuModuleUnload', m)")
    assert tenant.counted() == before == tenant.machine.truth()


def test_a_file_counts_as_what_it_takes(
    tenant: fenced.Tenant, process: fenced.Process, tmp_path: Path
) -> None:
    """It is looked into as an image in memory is."""
    (tmp_path / "fits.ptx").write_text(image("bytes", 100 * MIB))
    process(f"made('cuModuleLoad', {str(tmp_path / 'fits.ptx')!r}.encode())")
    assert tenant.counted() == tenant.machine.truth()
    assert tenant.counted()[process.pid] > fenced.CONTEXT_BYTES + 100 * MIB


@pytest.mark.parametrize("load", LOAD_FILES)
def test_at_no_moment_does_a_file_take_more_than_the_quota(
    tenant: fenced.Tenant, process: fenced.Process, tmp_path: Path, load: str
) -> None:
    """It is refused before the driver has seen it."""
    (tmp_path / "large.ptx").write_text(image("bytes", 2 * GIB))
    path = str(tmp_path / "large.ptx").encode()
    before = tenant.counted()
    process.tell(f"{{answer({load.format(path)}) for _ in range(5000)}} == {{2}}")
    while not process.answers():
        assert sum(tenant.machine.truth().values()) <= GIB + fenced.CONTEXT_BYTES
    assert process.heard() is True
    assert tenant.counted() == before == tenant.machine.truth()


def test_a_pipe_is_read_once_and_counts(
    tenant: fenced.Tenant, process: fenced.Process, tmp_path: Path
) -> None:
    """It has no size that could be asked for."""
    os.mkfifo(tmp_path / "pipe")
    path = str(tmp_path / "pipe").encode()
    for count, expected in ((2 * GIB, fenced.OUT_OF_MEMORY), (100 * MIB, 0)):
        process.tell(f"answer('cuModuleLoad', byref(c_uint64()), {path!r})")
        (tmp_path / "pipe").write_text(image("bytes", count))
        assert process.heard() == expected
    assert tenant.counted() == tenant.machine.truth()
    assert tenant.counted()[process.pid] > fenced.CONTEXT_BYTES + 100 * MIB


@pytest.mark.parametrize("load", LOAD_FILES)
@pytest.mark.parametrize("content", FILES)
def test_a_file_that_is_no_code_gets_the_drivers_answer(
    machine: fenced.Machine, process: fenced.Process, tmp_path: Path, load: str, content: str
) -> None:
    """As without a fence: it is not there, empty, cut off, or nonsense."""
    path = tmp_path / "file"
    data = FILES[content]
    if data is not None:
        path.write_bytes(data)
    unfenced = machine.start()
    unfenced("context()")
    line = f"answer({load.format(str(path).encode())})"
    assert process(line) == unfenced(line) != 0


def test_neighbours_memory_is_not_taken_for_code(machine: fenced.Machine) -> None:
    """What a packed image takes is seen by what the card lost, whoever took it."""
    tenant, beside = machine.tenant("loading"), machine.tenant("beside", memory_bytes=8 * GIB)
    process, neighbour = tenant.started(), beside.started()
    process("from ways_memory import code, fat_binary")
    process("packed = fat_binary(code(4096))")
    neighbour.tell("[free(alloc(3 * GIB)) for _ in range(20000)] and None")
    process("loaded = [made('cuModuleLoadFatBinary', packed) for _ in range(2000)] and None")
    neighbour.kill()
    assert tenant.usage().refused == 0
    assert tenant.counted()[process.pid] < fenced.CONTEXT_BYTES + 2000 * 8192


def test_a_variable_that_fits_is_not_refused(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """The bound is what it takes, not twice that."""
    process(f"m = made('cuModuleLoadData', {image('bytes', 700 * MIB)!r}.encode())")
    assert tenant.counted() == tenant.machine.truth()


@pytest.mark.parametrize(
    "use",
    [
        "made('cuLibraryGetModule', lib)",
        "call('cuLibraryGetGlobal', byref(c_uint64()), 0, lib, b'big')",
        "made('cuKernelGetFunction', made('cuLibraryGetKernel', lib, b'f'))",
        "launched(made('cuLibraryGetKernel', lib, b'f'))",
        "launched(made('cuLibraryEnumerateKernels', 1, lib))",
    ],
)
def test_a_library_counts_where_it_is_used_first(tenant: fenced.Tenant, use: str) -> None:
    """Loaded without a context it takes no memory yet, and then as much as its variables."""
    process = tenant.start()
    process("call('cuInit', 0)")
    process("launched = lambda kernel: call('cuLaunchKernel', kernel, *[1] * 6, *[0] * 4)")
    process(LOAD_LIBRARY.format(image("bytes", 2 * GIB)))
    process("context(0)")
    before = tenant.counted()
    for _ in range(2):
        assert process.code(f"[{use}] and None") == fenced.OUT_OF_MEMORY
    assert tenant.counted() == before == tenant.machine.truth()
    process(LOAD_LIBRARY.format(image("bytes", 100 * MIB)))
    process(f"[{use}] and None")
    assert tenant.counted() == tenant.machine.truth()
    assert tenant.counted()[process.pid] >= before[process.pid] + 100 * MIB
    process("call('cuLibraryUnload', lib)")
    assert tenant.counted() == before == tenant.machine.truth()


def test_a_library_outlives_the_context_it_was_loaded_in(tenant: fenced.Tenant) -> None:
    """It counts until it is unloaded, as the next context finds it there."""
    process = tenant.start()
    process("call('cuInit', 0)")
    process("first = made('cuCtxCreate_v2', 0, 0)")
    process(LOAD_LIBRARY.format(image("bytes", 300 * MIB)))
    process("made('cuLibraryGetModule', lib) and None; call('cuCtxDestroy_v2', first)")
    process("second = made('cuCtxCreate_v2', 0, 0); made('cuLibraryGetModule', lib) and None")
    assert tenant.counted() == tenant.machine.truth()
