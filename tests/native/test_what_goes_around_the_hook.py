"""What goes around the hook gets out, and the watch finds it; what used to get out is held."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from partage.fence import layout
from tests.native import fenced, looks
from tests.native.fenced import FENCE, GIB, LIBRARIES, MIB, OUT_OF_MEMORY

DRIVER = LIBRARIES / "libcuda.so.1"
CALLS = ("cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2")
TOO_MUCH = 3 * GIB  # of a quota of one


@pytest.fixture
def tenant(machine: fenced.Machine) -> fenced.Tenant:
    """One with a quota of 1 GiB."""
    return machine.tenant()


def told(process: fenced.Process) -> fenced.Process:
    """A program that knows the ways."""
    source = (fenced.HERE / "around.py").read_text()
    process(f"exec({source!r}, globals())")
    return process


def link(folder: Path) -> str:
    """Another name for the driver's file."""
    path = folder / "nothing-like-it.so"
    path.symlink_to(DRIVER)
    return f"ctypes.CDLL({str(path)!r})"


def copy(folder: Path) -> str:
    """Another file with the same content."""
    path = folder / "nothing-like-it.so"
    shutil.copy(DRIVER, path)
    return f"ctypes.CDLL({str(path)!r})"


def descriptor(_folder: Path) -> str:
    """By a descriptor of the driver's file."""
    return f"ctypes.CDLL('/proc/self/fd/%d' % os.open({str(DRIVER)!r}, 0))"


@pytest.mark.parametrize("opened", [link, copy, descriptor])
def test_the_driver_is_held_by_whatever_name_it_is_opened(
    tenant: fenced.Tenant, tmp_path: Path, opened: Callable[[Path], str]
) -> None:
    """It is known by what it calls itself; within the quota it works."""
    process = told(tenant.start())
    process(f"cuda = {opened(tmp_path)}")
    assert process(f"takes(cuda, {TOO_MUCH})") == OUT_OF_MEMORY
    assert process("takes(cuda, 100 * MIB)") == 0
    assert tenant.counted() == tenant.machine.truth()


def unset(tenant: fenced.Tenant, _folder: Path) -> fenced.Process:
    """Started without the preload."""
    process = told(tenant.machine.start())
    assert process(f"takes(ctypes.CDLL('libcuda.so.1'), {TOO_MUCH})") == 0
    return process


def soname(tenant: fenced.Tenant, folder: Path) -> fenced.Process:
    """Behind a library that the loader takes for the fence, since it is called like it."""
    flags = ("-shared", "-fPIC", f"-Wl,-soname,{FENCE}")
    other = fenced.compiled(folder / "nothing.so", "nothing.c", *flags)
    process = told(tenant.start(LD_PRELOAD=f"{other} {FENCE}"))
    assert process(f"takes(ctypes.CDLL('libcuda.so.1'), {TOO_MUCH})") == 0
    return process


def forged(tenant: fenced.Tenant, _folder: Path) -> fenced.Process:
    """With limits of its own, where the environment names them."""
    other = tenant.machine.tenant("forged", memory_bytes=8 * GIB)
    process = told(other.start())
    assert process(f"takes(ctypes.CDLL('libcuda.so.1'), {TOO_MUCH})") == 0
    return process


def address(tenant: fenced.Tenant, _folder: Path) -> fenced.Process:
    """With addresses out of the driver's file."""
    offsets = {name: _offset(DRIVER, name) for name in CALLS}
    process = told(tenant.start())
    assert process(f"by_address({str(DRIVER)!r}, {offsets}, {TOO_MUCH})") == 0
    return process


def patch(tenant: fenced.Tenant, _folder: Path) -> fenced.Process:
    """With a wrapper that was written over."""
    places = _offset(FENCE, "cuMemAlloc_v2"), _offset(DRIVER, "cuMemAlloc_v2")
    process = told(tenant.start())
    words = f"{str(FENCE)!r}, {str(DRIVER)!r}, {places[0]}, {places[1]}, {TOO_MUCH}"
    assert process(f"by_a_patch({words})") == 0
    return process


def remap(tenant: fenced.Tenant, _folder: Path) -> fenced.Process:
    """With other limits where the fence has mapped its own."""
    offset = layout.Limits.card.offset + layout.LimitsCard.memory_bytes.offset
    process = told(tenant.start())
    path = str(tenant.folder / "limits")
    assert process(f"by_other_limits({path!r}, {offset}, {TOO_MUCH})") == 0
    return process


def word(tenant: fenced.Tenant, _folder: Path) -> fenced.Process:
    """With a region that says what it likes."""
    offset = layout.Region.used_bytes.offset + 8  # of the first card and the second slot
    process = told(tenant.start())
    path = str(tenant.folder / "region")
    assert process(f"by_its_own_word({path!r}, {offset}, {TOO_MUCH}, {512 * MIB})") == 0
    return process


def _offset(path: Path, name: str) -> int:
    """Where a function is in a library, from its beginning in memory."""
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in listed.stdout.splitlines())
    return next(int(row[0], 16) for row in rows if row[-1].partition("@")[0] == name)


@pytest.mark.parametrize("way", [unset, soname, forged, address, patch, remap, word])
def test_who_gets_out_is_found(
    machine: fenced.Machine,
    tenant: fenced.Tenant,
    tmp_path: Path,
    way: Callable[[fenced.Tenant, Path], fenced.Process],
) -> None:
    """It holds three times its quota, and the watch names the process and what it holds."""
    honest = tenant.started()
    escaped = way(tenant, tmp_path)
    assert machine.truth()[escaped.pid] >= TOO_MUCH
    found = looks.findings(machine, tenant, escaped.pid, honest.pid)
    assert {each.process.pid for each in found} == {escaped.pid}
    assert found[0].held_bytes == machine.truth()[escaped.pid]
    assert found[0].beyond_bytes >= TOO_MUCH - GIB
