"""Situations in which another preload library was seen to fail, one test for each.

They are the rows of a table that was measured with HAMi-core (8f3a89c) on a simulated driver; each
docstring begins with what had happened there.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from partage.fence.store import limits
from tests import leaving_out
from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, MIB, OUT_OF_MEMORY


def test_1_memory_of_pools_is_limited_and_can_be_freed(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """4 GiB of a pool were given to a tenant with 1 GiB, and could not be freed: here neither."""
    process("own = pool()")
    assert process.code("made('cuMemAllocFromPoolAsync', 4 * GIB, own, 0)") == OUT_OF_MEMORY
    process("pointer = made('cuMemAllocFromPoolAsync', 500 * MIB, own, 0)")
    assert process.code("call('cuMemFreeAsync', pointer, 0)") == 0
    process("call('cuStreamSynchronize', 0)")
    assert tenant.counted() == tenant.machine.truth() == {process.pid: CONTEXT_BYTES}


def test_2_each_free_takes_what_either_allocation_gave(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Neither free took the other's memory, which leaked: CUDA allows both, and so do we."""
    for _ in range(3):
        process("one, other = alloc(300 * MIB), stream_pointer(300 * MIB)")
        assert process.code("free(other)") == 0
        assert process.code("call('cuMemFreeAsync', one, 0)") == 0
        process("call('cuCtxSynchronize')")
    assert tenant.counted() == tenant.machine.truth() == {process.pid: CONTEXT_BYTES}


def test_3_too_much_in_stream_order_is_error_2(process: fenced.Process) -> None:
    """The error was -1, which is none of CUDA's."""
    assert process.code("stream_pointer(2 * GIB)") == OUT_OF_MEMORY


def test_4_memory_that_is_mapped_is_counted_after_its_handle_is_released(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Six times create, map, release left 3 GiB on the card and 0 in the accounts."""
    way = "cuMemCreate, cuMemMap, cuMemRelease, cuMemUnmap"
    codes = [process.code(f"take({way!r}, 512 * MIB)") for _ in range(6)]
    assert codes == [0] + [OUT_OF_MEMORY] * 5
    assert tenant.counted() == tenant.machine.truth() == {process.pid: CONTEXT_BYTES + 512 * MIB}


def test_5_arrays_are_counted(tenant: fenced.Tenant, process: fenced.Process) -> None:
    """An array of 1 GiB was not."""
    way = "cuArrayCreate_v2 in 2 dimensions, cuArrayDestroy"
    assert process.code(f"take({way!r}, GIB)") == OUT_OF_MEMORY
    process(f"take({way!r}, GIB // 2)")
    assert tenant.counted() == tenant.machine.truth() == {process.pid: CONTEXT_BYTES + GIB // 2}


def test_6_two_killed_processes_and_a_new_one_confuse_no_account(machine: fenced.Machine) -> None:
    """Slots were moved under a living process, which then wrote into another's: theirs stay."""
    tenant = machine.tenant(memory_bytes=2 * GIB)
    first, second, living = (tenant.started() for _ in range(3))
    living("kept = alloc(100 * MIB)")
    first.kill()
    second.kill()
    new = tenant.started()
    new("alloc(100 * MIB)")
    assert living.code("alloc(1700 * MIB)") == OUT_OF_MEMORY
    living("free(kept)")
    assert (
        tenant.counted()
        == machine.truth()
        == {
            living.pid: CONTEXT_BYTES,
            new.pid: CONTEXT_BYTES + 100 * MIB,
        }
    )


def test_7_what_a_killed_process_had_is_free_for_a_neighbour_at_once(
    machine: fenced.Machine,
) -> None:
    """It stayed counted until a new process came: an existing one gets it with its next call."""
    tenant = machine.tenant(memory_bytes=GIB + 2 * CONTEXT_BYTES)
    one, neighbour = tenant.started(), tenant.started()
    one("alloc(900 * MIB)")
    assert neighbour.code("alloc(900 * MIB)") == OUT_OF_MEMORY
    one.kill()
    assert neighbour.code("alloc(900 * MIB)") == 0
    assert neighbour("memory_info()")[0] == GIB + CONTEXT_BYTES - 900 * MIB


@pytest.mark.slow  # a program is stepped through, instruction by instruction
@pytest.mark.parametrize(("way", "stride"), [("linear", 37), ("pooled", 97), ("physical", 97)])
def test_8_a_writer_killed_at_any_instruction_blocks_nobody(
    machine: fenced.Machine, tmp_path: Path, way: str, stride: int
) -> None:
    """One who died while writing left others spinning: here one dies at every few instructions.

    Of an allocation and a free, driver included; after each death a neighbour gets all there is.
    """
    tenant = machine.tenant(memory_bytes=CONTEXT_BYTES + GIB)
    stepper = fenced.compiled(tmp_path / "stepper", "stepper.c")
    ran = machine.run(stepper, way, str(stride), "1024", environment=tenant.environment)
    if ran.returncode == 3:
        leaving_out.leave_out("ptrace", "to stop a process at each instruction")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert int(ran.stdout) > 20
    assert tenant.counted() == {}


def test_9_processes_that_allocate_at_once_never_get_more_than_the_quota(
    machine: fenced.Machine,
) -> None:
    """Four of six got 300 MiB each of 1 GiB: only three fit, and no more get it in any round."""
    tenant = machine.tenant(memory_bytes=GIB + 8 * CONTEXT_BYTES)
    crowd = [tenant.started() for _ in range(8)]
    for _ in range(25):
        for process in crowd:
            process.tell("answer('cuMemAlloc_v2', byref(pointer := c_uint64()), 300 * MIB)")
        codes = [process.heard() for process in crowd]
        assert set(codes) == {0, OUT_OF_MEMORY}
        assert codes.count(0) <= 3
        for process, code in zip(crowd, codes, strict=True):
            if code == 0:
                process("free(pointer.value)")


@pytest.mark.parametrize("last", ["stopped", "neighbour"])
def test_9_whatever_instruction_one_is_at_a_neighbour_gets_what_it_does_not(
    machine: fenced.Machine, tmp_path: Path, last: str
) -> None:
    """There is room for one of two: one stops at every instruction of the fence, the other asks.

    Whoever took something last remembers what the other had, and must not go by that any more.
    """
    tenant = machine.tenant(memory_bytes=2 * CONTEXT_BYTES + GIB)
    between = fenced.compiled(tmp_path / "between", "between.c")
    ran = machine.run(between, last, "600", environment=tenant.environment)
    if ran.returncode == 3:
        leaving_out.leave_out("ptrace", "to stop a process at each instruction")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert int(ran.stdout) > 100
    assert tenant.usage().peak_bytes == CONTEXT_BYTES + 900 * MIB


def test_10_a_process_without_the_variable_lifts_no_limit(
    machine: fenced.Machine, tenant: fenced.Tenant
) -> None:
    """One that came first, by ssh or cron, set no limit for all: here it gets nothing itself."""
    stranger = machine.start({"LD_PRELOAD": str(fenced.FENCE)})
    assert stranger.code("context()") == fenced.NOT_PERMITTED
    assert tenant.started().code("alloc(2 * GIB)") == OUT_OF_MEMORY


def test_11_umask_and_signals_are_left_alone(tenant: fenced.Tenant) -> None:
    """The umask was set to 0, and handlers of signals were replaced."""
    process = tenant.start()
    process("import os, signal")
    process("before = os.umask(0o027)")
    process("signal.signal(signal.SIGUSR1, lambda *_: seen.append(1)); seen = []")
    handled = "[str(signal.getsignal(s)) for s in sorted(signal.valid_signals())]"
    mask = "sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    before = process(handled), process(mask), Path(f"/proc/{process.pid}/status").read_text()
    process("context(); free(alloc(MIB)); card_memory(); processes()")
    assert process.code("alloc(2 * GIB)") == OUT_OF_MEMORY

    assert process("os.umask(0)") == 0o027
    assert (process(handled), process(mask)) == before[:2]
    assert _signals(process.pid) == _signals_in(before[2])
    os.kill(process.pid, signal.SIGUSR1)
    process("signal.sigtimedwait([], 0)")
    assert process("seen") == [1]


def _signals(pid: int) -> list[str]:
    """Which signals the kernel knows to be blocked, ignored and caught."""
    return _signals_in(Path(f"/proc/{pid}/status").read_text())


def _signals_in(status: str) -> list[str]:
    return [line for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]


def test_12_a_lookup_by_a_program_without_cuda_does_nothing(
    tenant: fenced.Tenant, tmp_path: Path
) -> None:
    """A lookup of cu... made a region, or ended the program with exit(1): here nothing happens."""
    nowhere = tmp_path / "nowhere/limits"
    process = tenant.start(PARTAGE_LIMITS=str(nowhere))
    process("import os; before = os.listdir('/proc/self/fd'), open('/proc/self/maps').read()")
    process("everything = ctypes.CDLL(None)")
    for name in ("cuDeviceGetName", "curl_easy_init", "cuMemAlloc_v2x", "nvmlInit"):
        assert process(f"hasattr(everything, {name!r})") is False
    process("ctypes.CDLL('libm.so.6').cos; hasattr(ctypes.CDLL('libm.so.6'), 'cuMemAlloc_v2')")

    assert process("[len(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task'))]") == [
        len(process("before")[0]),
        1,
    ]
    assert "/region" not in process("open('/proc/self/maps').read()")
    assert tenant.counted() == {}
    assert not nowhere.parent.exists()
    assert process.end() == ""


def test_13_without_a_quota_the_card_is_as_large_as_it_is(machine: fenced.Machine) -> None:
    """cuDeviceTotalMem gave 0."""
    process = machine.tenant(memory_bytes=limits.NO_QUOTA).started()
    assert process("total_memory()") == 16 * GIB
    assert process("memory_info()") == [16 * GIB - CONTEXT_BYTES, 16 * GIB]
    assert process("card_memory()['total']") == 16 * GIB


def test_14_the_card_that_a_program_chose_is_the_one_that_is_charged(
    machine: fenced.Machine,
) -> None:
    """With CUDA_VISIBLE_DEVICES=1 of two cards, the context was not counted: here on card 1."""
    tenant = machine.tenant(cards=(0, 1))
    process = tenant.started(CUDA_VISIBLE_DEVICES="1")
    process("alloc(100 * MIB)")
    expected = {process.pid: CONTEXT_BYTES + 100 * MIB}
    assert (tenant.counted(0), tenant.counted(1)) == ({process.pid: 0}, expected)
    assert (machine.truth(0), machine.truth(1)) == ({}, expected)
