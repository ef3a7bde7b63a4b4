"""Code takes memory: its image, and variables that have no bytes in it."""

from __future__ import annotations

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
    """It is not looked into; what the card lost counts, and past the quota it is unloaded."""
    (tmp_path / "fits.ptx").write_text(image("bytes", 100 * MIB))
    (tmp_path / "large.ptx").write_text(image("bytes", 2 * GIB))
    process(f"made('cuModuleLoad', {str(tmp_path / 'fits.ptx')!r}.encode())")
    before = tenant.counted()
    assert before == tenant.machine.truth()
    load = f"made('cuModuleLoad', {str(tmp_path / 'large.ptx')!r}.encode())"
    assert process.code(load) == fenced.OUT_OF_MEMORY
    assert tenant.counted() == before == tenant.machine.truth()


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
    ],
)
def test_a_library_counts_where_it_is_used_first(tenant: fenced.Tenant, use: str) -> None:
    """Loaded without a context it takes no memory yet, and then as much as its variables."""
    process = tenant.start()
    process("call('cuInit', 0)")
    process(LOAD_LIBRARY.format(image("bytes", 2 * GIB)))
    process("context(0)")
    before = tenant.counted()
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
