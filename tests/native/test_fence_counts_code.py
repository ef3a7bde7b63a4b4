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
}


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
