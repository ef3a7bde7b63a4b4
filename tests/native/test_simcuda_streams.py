"""Streams of the simulated driver order work as those of a real one."""

from __future__ import annotations

from tests.native import driver_areas, fenced
from tests.native.driver_areas import Area

area = driver_areas.fixture("sim_streams.c")


def test_events_measure_the_cards_time_exactly(area: Area) -> None:
    """Two kernels of 5 ms lie 10 ms apart, however late the host was."""
    area("events")


def test_the_legacy_stream_waits_for_others_and_they_for_it(area: Area) -> None:
    """Unless they are non-blocking, and then only if they wait for an event."""
    area("streams")


def test_each_thread_has_a_default_stream_of_its_own(area: Area) -> None:
    """Work on one leaves the other idle."""
    area("streams of threads")


def test_functions_of_the_host_are_called_in_the_order_of_the_stream(area: Area) -> None:
    """Not before the work in front of them is done."""
    area("callbacks")


def test_functions_per_thread_mean_the_threads_own_stream(machine: fenced.Machine) -> None:
    """What they call stream 0 is another one in each thread, and not the legacy one."""
    not_ready, endless_us, own = 600, 120_000_000, 2  # the last is CU_STREAM_PER_THREAD
    program = machine.start()
    program("import threading; from timed_kernels import *; shared = context()")
    program(f"launch({endless_us}, 'cuLaunchKernel_ptsz')")
    program(
        "def query():\n"
        " call('cuCtxSetCurrent', shared)\n"
        " seen.append(answer('cuStreamQuery_ptsz', 0))\n"
        "seen = []; thread = threading.Thread(target=query); thread.start(); thread.join()"
    )
    assert program("seen") == [0]
    assert program.code("call('cuStreamQuery_ptsz', 0)") == not_ready
    assert program.code(f"call('cuStreamQuery', {own})") == not_ready
