"""What goes around the hook gets out, and the watch finds it; what used to get out is held."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from partage.fence.store import layout
from partage.fence.watch import escapes
from tests import leaving_out
from tests.native import fenced, watch_looks
from tests.native.fenced import FENCE, GIB, LIBRARIES, MIB, OUT_OF_MEMORY

DRIVER = LIBRARIES / "libcuda.so.1"
CALLS = ("cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2")
EXPORT_TABLE = b"simcuda's table\0"
MOST = 700 * MIB  # of a GiB, beside a context
TOO_MUCH = 2 * GIB  # of a quota of one


@pytest.fixture
def tenant(machine: fenced.Machine) -> fenced.Tenant:
    """One with a quota of 1 GiB."""
    return machine.tenant()


def with_ways(process: fenced.Process) -> fenced.Process:
    """A program that knows the ways."""
    source = (fenced.HERE / "hook_escapes.py").read_text()
    process(f"exec({source!r}, globals())")
    return process


def start(tenant: fenced.Tenant, launcher: Sequence[str] = (), **changes: str) -> fenced.Process:
    """The same, behind the fence by both ways in."""
    return with_ways(tenant.machine.start(tenant.whole_environment, launcher, **changes))


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
    process = with_ways(tenant.start())
    process(f"cuda = {opened(tmp_path)}")
    assert process(f"takes(cuda, {TOO_MUCH})") == OUT_OF_MEMORY
    assert process("takes(cuda, 100 * MIB)") == 0
    assert tenant.counted() == tenant.machine.truth()


def forged(tenant: fenced.Tenant, _folder: Path) -> fenced.Process:
    """With limits of its own, where the environment names them."""
    other = tenant.machine.tenant("forged", memory_bytes=8 * GIB)
    process = start(other)
    assert process(f"takes(ctypes.CDLL('libcuda.so.1'), {TOO_MUCH})") == 0
    return process


def interposed(tenant: fenced.Tenant, folder: Path) -> fenced.Process:
    """Behind an `open` that gives the fence limits of the program's own."""
    other = tenant.machine.tenant("forged", memory_bytes=8 * GIB)
    liar = fenced.compiled(folder / "liar.so", "liar.c", "-shared", "-fPIC")
    preload = f"{liar} {tenant.whole_environment['LD_PRELOAD']}"
    process = start(tenant, LD_PRELOAD=preload, LIAR_LIMITS=str(other.folder / "limits"))
    assert process(f"takes(ctypes.CDLL('libcuda.so.1'), {TOO_MUCH})") == 0
    return process


def address(tenant: fenced.Tenant, _folder: Path) -> fenced.Process:
    """With addresses out of the driver's file."""
    offsets = {name: _offset(DRIVER, name) for name in CALLS}
    process = start(tenant)
    assert process(f"by_address({str(DRIVER)!r}, {offsets}, {TOO_MUCH})") == 0
    return process


def tables(tenant: fenced.Tenant, _folder: Path) -> fenced.Process:
    """With addresses out of the loader's lists and the driver's symbols, as they lie in memory."""
    process = start(tenant)
    assert process(f"by_the_tables({CALLS}, {TOO_MUCH})") == 0
    return process


def export_table(tenant: fenced.Tenant, _folder: Path) -> fenced.Process:
    """With a function that no name leads to, from a table of the driver's (cuGetExportTable)."""
    process = start(tenant)
    assert process(f"by_an_export_table({EXPORT_TABLE!r}, {TOO_MUCH})") == 0
    return process


def patch(tenant: fenced.Tenant, _folder: Path) -> fenced.Process:
    """With a wrapper that was written over."""
    places = _offset(FENCE, "cuMemAlloc_v2"), _offset(DRIVER, "cuMemAlloc_v2")
    process = start(tenant)
    words = f"{str(FENCE)!r}, {str(DRIVER)!r}, {places[0]}, {places[1]}, {TOO_MUCH}"
    assert process(f"by_a_patch({words})") == 0
    return process


def remap(tenant: fenced.Tenant, folder: Path) -> fenced.Process:
    """With other limits where the fence has mapped its own, on a kernel that seals no mappings."""
    process = start(tenant, fenced.unanswered(folder, fenced.SEAL_CALL))
    assert process(other_limits(tenant)) == 0
    return process


def other_limits(tenant: fenced.Tenant) -> str:
    """What a program is told to do that."""
    offset = layout.Limits.card.offset + layout.LimitsCard.memory_bytes.offset
    return f"by_other_limits({str(tenant.folder / 'limits')!r}, {offset}, {TOO_MUCH})"


def word(tenant: fenced.Tenant, _folder: Path) -> fenced.Process:
    """With a region that says what it likes."""
    offset = layout.Region.used_bytes.offset + 8  # of the first card and the second slot
    process = start(tenant)
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


@pytest.mark.parametrize(
    "way", [forged, interposed, address, tables, export_table, patch, remap, word]
)
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
    assert watch_looks.finds(machine, tenant, escaped.pid, honest.pid)


def test_slots_that_are_let_go_of_are_found(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path
) -> None:
    """Without seals: two processes have almost all of the quota, each, and one of them is named."""
    launcher = fenced.unanswered(tmp_path, fenced.SEAL_CALL)
    first, second = start(tenant, launcher), start(tenant, launcher)
    for process in (first, second):
        assert process(f"takes(ctypes.CDLL('libcuda.so.1'), {MOST})") == 0
        assert process(f"lets_go({str(tenant.folder / 'region')!r})") is True
    findings = watch_looks.findings(machine, tenant, first.pid, second.pid)
    excess = next(finding for finding in findings if finding.kind is escapes.Kind.EXCESS)
    assert excess.process.pid in (first.pid, second.pid)
    assert excess.beyond_bytes == sum(machine.truth().values()) - GIB


def test_limits_and_slots_stay_where_the_kernel_seals_them(tenant: fenced.Tenant) -> None:
    """Nothing is mapped in their place, nor are they unmapped; what follows is held and counted."""
    if ctypes.CDLL(None).syscall(int(fenced.SEAL_CALL), 0, 0, 0):
        leaving_out.leave_out("a kernel that seals mappings", "Linux has that since 6.10")
    first, second = start(tenant), start(tenant)
    assert first(other_limits(tenant)) == OUT_OF_MEMORY
    assert first(f"takes(ctypes.CDLL('libcuda.so.1'), {MOST - MIB})") == 0
    assert first(f"lets_go({str(tenant.folder / 'region')!r})") is False
    assert second.code("context()") == OUT_OF_MEMORY
    assert tenant.counted()[first.pid] == tenant.machine.truth()[first.pid]
