"""A simulated card has one queue, in which each piece of work has its exact nanosecond.

Bounds are from below, or exact by the card's own clock: how late a busy host is does not matter.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.native import fenced

LONG_US = 300_000  # longer than a busy host takes between two calls
ENDLESS_US = 120_000_000
NOT_FOUND = 6  # of NVML


def started(machine: fenced.Machine, **changes: str) -> fenced.Process:
    """A program that can launch."""
    process = machine.start(changes)
    process("context(); from timed_kernels import *; from nvml_onlooker import *")
    process("def recorded():\n e = made('cuEventCreate', 0); call('cuEventRecord', e, 0); return e")
    process("ms = ctypes.c_float()")
    process(
        "def between(a, b):\n"
        " call('cuEventSynchronize', b); call('cuEventElapsedTime', byref(ms), a, b)\n"
        " return ms.value"
    )
    return process


def work_done(machine: fenced.Machine) -> dict[int, int]:
    """Nanoseconds of work that each process has had done on the first card."""
    listed = machine.run(fenced.LIBRARIES / "simsmi", "-p").stdout
    rows = [line.split() for line in listed.splitlines() if line.startswith("0 ")]
    return {int(pid): int(done_ns) for _, pid, _, done_ns in rows}


def test_work_of_two_processes_is_done_one_after_the_other(machine: fenced.Machine) -> None:
    """In the order in which it was queued, by the clock that both have in common."""
    first, second = started(machine), started(machine)
    began = first(f"(time.monotonic(), launch({LONG_US}))[0]")
    ended = second("launch(1000) or call('cuCtxSynchronize') or time.monotonic()")
    assert ended - began >= (LONG_US + 1000) / 1e6


def test_what_a_process_queued_that_was_killed_is_never_waited_for(
    machine: fenced.Machine,
) -> None:
    """Two minutes of work are in front of a millisecond, until the one who wanted them dies."""
    greedy, waiting = started(machine), started(machine)
    greedy(f"launch({ENDLESS_US})")
    waiting("launch(1000)")
    waiting.tell("call('cuCtxSynchronize')")
    time.sleep(0.1)
    greedy.kill()
    began = time.monotonic()
    waiting.heard()
    assert time.monotonic() - began < ENDLESS_US / 1e6 / 4


def test_events_of_a_process_see_the_work_of_its_neighbour(machine: fenced.Machine) -> None:
    """What another process has queued in between lies between them, to the nanosecond."""
    one, other = started(machine), started(machine)
    one(f"launch({LONG_US}); start = recorded()")
    other("launch(7000)")
    one("launch(1000); stop = recorded()")
    assert one("between(start, stop)") == 8.0


def test_a_copy_takes_its_time_beside_the_kernels(machine: fenced.Machine) -> None:
    """12 GB in a second, on the stream that it is copied on; the card's queue goes on meanwhile."""
    program = started(machine)
    program("size = 12_000_000; one, other = alloc(size), alloc(size)")
    program(f"launch({LONG_US}); start = recorded()")
    program("call('cuMemcpyDtoDAsync_v2', other, one, size, 0); stop = recorded()")
    assert program("between(start, stop)") == pytest.approx(1.002, abs=1e-6)
    assert set(work_done(machine).values()) == {LONG_US * 1000}


def test_work_done_is_told_to_the_nanosecond(machine: fenced.Machine) -> None:
    """Of each process, by simsmi, when it is done and not when it is queued."""
    one, other = started(machine), started(machine)
    one("took(7, 1000)")
    other(f"took(2, 1500); launch({ENDLESS_US})")
    done = work_done(machine)
    assert done[one.pid] == 7_000_000
    assert 3_000_000 <= done[other.pid] < ENDLESS_US * 1000


def soon(process: fenced.Process, line: str, expected: object) -> None:
    """Until then a line may give something else, or be refused."""
    deadline = time.monotonic() + 30
    while process.code(line) or process(line) != expected:
        assert time.monotonic() < deadline, process(line)
        time.sleep(0.02)


def test_nvml_tells_how_busy_a_process_keeps_a_card(machine: fenced.Machine) -> None:
    """All of the time it looks back on; nobody keeps the other card busy, nor this one before."""
    machine.observer("from nvml_onlooker import *")
    program, idle = started(machine), started(machine)
    assert machine.observer("[busy_percent(0), busy_percent(1)]") == [0, 0]
    assert machine.observer.code("busy_percents(0)") == NOT_FOUND
    program(f"launch({ENDLESS_US})")
    soon(machine.observer, "busy_percents(0)", {str(program.pid): 100})
    assert machine.observer("[busy_percent(0), busy_percent(1)]") == [100, 0]
    assert set(machine.truth()) == {program.pid, idle.pid}


def test_two_processes_in_turns_keep_a_card_busy_half_of_the_time_each(
    machine: fenced.Machine,
) -> None:
    """Of turns of 50 ms just four lie within the 200 ms that are looked back on."""
    machine.observer("from nvml_onlooker import *")
    one, other = started(machine), started(machine)
    for _ in range(100):
        one("launch(50_000)")
        other("launch(50_000)")
    soon(machine.observer, "busy_percents()", {str(one.pid): 50, str(other.pid): 50})
    soon(machine.observer, "busy_percent()", 100)


def test_a_busy_process_is_not_busy_any_more_once_it_is_dead(machine: fenced.Machine) -> None:
    """What it had queued is no work, neither now nor when its time would have come."""
    machine.observer("from nvml_onlooker import *")
    program = started(machine)
    program(f"launch({ENDLESS_US})")
    soon(machine.observer, "busy_percent()", 100)
    program.kill()
    assert machine.observer.code("busy_percents()") == NOT_FOUND
    soon(machine.observer, "busy_percent()", 0)


def test_a_process_may_only_queue_so_much(machine: fenced.Machine) -> None:
    """As on a real card, one that launches faster than the card works has to wait at last."""
    program = started(machine)
    began = time.monotonic()
    program("[launch(500) for _ in range(1024 + 200)]")
    assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("way", ["environment", "file"])
def test_a_kernel_takes_as_long_as_its_name_says(
    machine: fenced.Machine, tmp_path: Path, way: str
) -> None:
    """Set for all kernels, and for one of them by name."""
    config = tmp_path / "config"
    config.write_text("kernel_us = 1500\nkernel_us.other = 2500.5  # a fraction is fine\n")
    settings = {
        "environment": {"SIMCUDA_KERNEL_US": "1500", "SIMCUDA_KERNEL_US_other": "2500.5"},
        "file": {"SIMCUDA_CONFIG": str(config)},
    }
    program = started(machine, **settings[way])
    program("image = IMAGE.replace(b'spin_us', b'third')")
    program("module = made('cuModuleLoadData', image)")
    for name, expected_ms in (("other", 2.5005), ("third", 1.5)):
        program(f"launch({LONG_US}); start = recorded()")
        program(f"kernel_of = made('cuModuleGetFunction', module, {name.encode()!r})")
        program("call('cuLaunchKernel', kernel_of, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)")
        assert program("between(start, recorded())") == pytest.approx(expected_ms, abs=1e-6)
