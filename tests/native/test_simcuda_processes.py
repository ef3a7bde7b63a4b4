"""All processes on a simulated machine share its cards, whatever becomes of each of them."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, MIB, NOT_INITIALIZED, OUT_OF_MEMORY

SLOTS = 512  # processes that a machine has room for


def started(machine: fenced.Machine) -> fenced.Process:
    """A program with a context."""
    process = machine.start()
    process("context()")
    return process


@pytest.mark.parametrize(("count", "mib", "fitting"), [(4, 300, 3), (6, 300, 3), (2, 1024, 1)])
def test_processes_that_allocate_at_once_never_get_more_than_the_card_has(
    tmp_path: Path, count: int, mib: int, fitting: int
) -> None:
    """Of those who want it at the same instant just so many get it as there is room for."""
    race = fenced.compiled(tmp_path / "race", "sim_race.c")
    with fenced.machine(tmp_path, "1GiB", context_mib="0") as machine:
        ran = machine.run(race, *map(str, (count, 1000, mib, fitting)))
        assert (ran.returncode, ran.stderr) == (0, "")
        assert machine.observer("card_memory()")["used"] == 0


def test_processes_killed_at_any_moment_leave_nothing_behind(tmp_path: Path) -> None:
    """30 that allocate near the limit die; the one that lives on keeps its bytes, and no others."""
    racer = fenced.compiled(tmp_path / "racer", "racer.c")
    moments = random.Random(1)
    with fenced.machine(tmp_path, "1GiB", context_mib="16") as machine:
        survivor = machine.run_in_background([str(racer), "256"])
        # On a busy machine the others could fill the card before it has its context.
        while survivor.pid not in machine.truth():
            assert survivor.running.poll() is None
        for _ in range(15):
            pair = [machine.run_in_background([str(racer), "256"]) for _ in range(2)]
            for process in pair:
                time.sleep(moments.uniform(0.002, 0.02))
                assert sum(machine.truth().values()) <= GIB
                process.kill()
            assert set(machine.truth()) <= {survivor.pid}
        survivor.running.stdin.close()  # type: ignore[union-attr]
        assert survivor.line() == "freed all"
        assert machine.truth() == {survivor.pid: 16 * MIB}
        assert machine.observer("card_memory()")["used"] == 16 * MIB


def test_what_a_killed_process_had_is_gone_at_once(machine: fenced.Machine) -> None:
    """For NVML, and for one who allocates with the next call."""
    one, neighbour = started(machine), started(machine)
    one("alloc(15 * GIB)")
    assert neighbour.code("alloc(2 * GIB)") == OUT_OF_MEMORY
    one.kill()
    assert machine.truth() == {neighbour.pid: CONTEXT_BYTES}
    assert neighbour("memory_info()")[0] == 16 * GIB - CONTEXT_BYTES
    assert neighbour.code("alloc(15 * GIB)") == 0


def test_a_child_that_lives_on_keeps_nothing_of_its_killed_parent(machine: fenced.Machine) -> None:
    """Neither one that was forked, nor one that runs another program."""
    parent = started(machine)
    parent("alloc(GIB); import os, subprocess, time")
    parent("forked = os.fork() or (time.sleep(60), os._exit(0))")
    other = "subprocess.Popen(['sleep', '60'], close_fds=False).pid"
    children = [parent("forked"), parent(other)]
    try:
        parent.kill()
        assert machine.truth() == {}
        assert machine.observer("card_memory()")["used"] == 0
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_the_child_of_a_process_with_cuda_has_none(machine: fenced.Machine) -> None:
    """As with the real driver; a child that is forked before has its own."""
    parent = machine.start()
    assert parent("in_a_child('context() and alloc(MIB) > 0')") is True
    parent("context(); pointer = alloc(MIB)")
    for line in ("call('cuInit', 0)", "alloc(MIB)", "free(pointer)", "memory_info()"):
        assert parent.code(f"in_a_child({line!r})") == NOT_INITIALIZED
    parent("free(pointer)")
    assert machine.truth() == {parent.pid: CONTEXT_BYTES}


def test_300_processes_that_begin_at_once_share_one_machine(
    machine: fenced.Machine, tmp_path: Path
) -> None:
    """On a machine that the first of them has to make, all see the memory of all."""
    crowd = fenced.compiled(tmp_path / "crowd", "crowd.c")
    fresh = {"SIMCUDA_STATE": str(tmp_path / "fresh"), "SIMCUDA_CONTEXT_MIB": "1"}
    members = machine.run_in_background([str(crowd), "300", str(2 * MIB)], fresh)
    assert members.line() == "0"  # so many were refused

    onlooker = machine.start(fresh)
    held_bytes = onlooker("processes(0)")
    assert len(held_bytes) == 300
    assert set(held_bytes.values()) == {3 * MIB}
    assert onlooker("card_memory(0)")["used"] == 300 * 3 * MIB
    members.last_words()  # and so all have ended
    assert onlooker("[processes(0), card_memory(0)['used']]") == [{}, 0]


def test_a_machine_that_is_full_refuses_further_processes(
    machine: fenced.Machine, tmp_path: Path
) -> None:
    """With an error and a sentence, and until one of the others ends."""
    crowd = fenced.compiled(tmp_path / "crowd", "crowd.c")
    small = {"SIMCUDA_CONTEXT_MIB": "0"}
    members = machine.run_in_background([str(crowd), str(SLOTS), "1"], small)
    assert members.line() == "1"  # the observer has one of the places
    one_more = machine.start()
    assert one_more.code("call('cuInit', 0)") == OUT_OF_MEMORY
    members.last_words()  # and so all have ended
    assert one_more.code("call('cuInit', 0)") == 0
    assert "too many processes" in one_more.end()


def test_nvml_tells_what_each_process_has_on_each_card(machine: fenced.Machine) -> None:
    """To one who only looks, in every version; one without a context is on no card."""
    first, both = started(machine), started(machine)
    looking = machine.start()
    looking("call('cuInit', 0)")
    first("alloc(100 * MIB)")
    both("alloc(MIB); context(1); alloc(7 * MIB)")
    expected = {
        str(first.pid): CONTEXT_BYTES + 100 * MIB,
        str(both.pid): CONTEXT_BYTES + MIB,
    }
    for version in ("", "_v2", "_v3"):
        assert looking(f"processes(0, {version!r})") == expected
        assert looking(f"processes(1, {version!r})") == {str(both.pid): CONTEXT_BYTES + 7 * MIB}
    assert looking("how_many_processes(0)") == [7, 2]  # insufficient size
    assert looking("card_memory(0)") == {
        "total": 16 * GIB,
        "used": sum(expected.values()),
        "free": 16 * GIB - sum(expected.values()),
    }
    assert looking("card_memory_v2(0)")["used"] == sum(expected.values())


def test_memory_of_one_process_can_be_opened_by_another(machine: fenced.Machine) -> None:
    """It is the same memory, counted where it was allocated, and gone with its owner."""
    owner, guest = started(machine), started(machine)
    for process in (owner, guest):
        process("class Handle(ctypes.Structure): _fields_ = [('bytes', ctypes.c_ubyte * 64)]")
        process(
            "def read(at): return call('cuMemcpyDtoH_v2', byref(b := c_uint()), at, 4) or b.value"
        )
        process("def write(at, value): call('cuMemsetD32_v2', at, value, 1)")
    owner("pointer = alloc(MIB); write(pointer, 11)")
    owner("call('cuIpcGetMemHandle', byref(handle := Handle()), pointer)")
    passed = bytes(owner("list(handle.bytes)")).hex()

    guest(f"handle = Handle.from_buffer_copy(bytes.fromhex({passed!r}))")
    guest("call('cuIpcOpenMemHandle_v2', byref(opened := c_uint64()), handle, 1)")
    assert guest("read(opened.value)") == 11
    guest("write(opened.value, 22)")
    assert owner("read(pointer)") == 22
    assert machine.truth() == {owner.pid: CONTEXT_BYTES + MIB, guest.pid: CONTEXT_BYTES}
    guest("call('cuIpcCloseMemHandle', opened.value)")
    owner.kill()
    assert guest.code("call('cuIpcOpenMemHandle_v2', byref(opened), handle, 1)") == 400


@pytest.mark.parametrize("cards", ["1x16GiB", "2x8GiB", "2x16GiB:Tesla T4"])
def test_a_machine_is_the_same_for_all_who_use_it(machine: fenced.Machine, cards: str) -> None:
    """One with other settings gets an error; one with none takes the machine as it is."""
    stranger = machine.start(SIMCUDA_CARDS=cards)
    assert stranger.code("call('cuInit', 0)") == 803  # driver mismatch
    assert stranger.code("call('nvmlInit_v2')") == 18  # the same, in NVML's words
    assert "processes with other settings are running" in stranger.end()
    guest = machine.start(SIMCUDA_CARDS="")
    assert guest("call('cuInit', 0) or visible_devices()") == 2


def test_a_machine_that_nobody_uses_is_made_anew(machine: fenced.Machine, tmp_path: Path) -> None:
    """With the settings of the next who comes."""
    abandoned = {"SIMCUDA_STATE": str(tmp_path / "abandoned")}
    for cards, count in (("3x1GiB", 3), ("1GiB", 1), ("2x1GiB", 2)):
        process = machine.start(abandoned, SIMCUDA_CARDS=cards)
        assert process("call('cuInit', 0) or visible_devices()") == count
        process.end()


def test_a_program_without_standard_streams_does_not_write_over_the_machine(
    tmp_path: Path,
) -> None:
    """What is opened next takes the number of a stream that was closed."""
    with fenced.machine(tmp_path, "1GiB") as machine:
        program = machine.start()
        program("[os.close(fd) for fd in (2,)] and None")
        program("context()")
        program("os.write(2, b'over it') if os.path.exists('/proc/self/fd/2') else None")
        assert machine.observer("card_memory()")["total"] == GIB
        machine.start()("context()")
