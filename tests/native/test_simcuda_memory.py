"""Each kind of memory of the simulated driver costs what it should, and no more."""

from __future__ import annotations

from tests.native import driver_areas, fenced
from tests.native.driver_areas import Area

area = driver_areas.fixture("sim_memory.c")


def test_the_same_memory_can_be_mapped_at_two_addresses(area: Area) -> None:
    """What is written at one is read at the other, and both must be allowed before."""
    area("mappings")


def test_memory_that_is_shared_by_a_file_is_counted_once(area: Area) -> None:
    """Exported and imported, it is still the same memory."""
    area("shared mappings")


def test_managed_memory_is_the_hosts_and_the_devices(area: Area) -> None:
    """What one writes, the other reads."""
    area("managed")


def test_pinned_memory_costs_nothing_of_the_card(area: Area) -> None:
    """Allocated by the driver, or the program's own made known to it."""
    area("pinned")


def test_a_pool_keeps_what_is_freed_until_it_has_to_give_it_back(area: Area) -> None:
    """At a synchronization down to its threshold, at a trim to what is used."""
    area("pools")


def test_a_pool_makes_room_before_anybody_is_refused(area: Area) -> None:
    """What it only keeps, others may have."""
    area("pools make room")


def test_a_pool_that_cannot_grow_on_a_full_card_is_refused(area: Area) -> None:
    """Once it has given back what it only kept; it does not try for ever."""
    area("pools grow on a full card")


def test_a_context_costs_memory_and_takes_with_it_what_is_in_it(area: Area) -> None:
    """Each of several in one process."""
    area("contexts")


def test_a_context_that_is_refused_costs_nothing(area: Area) -> None:
    """A thread may have many, but not any number."""
    area("many contexts")


def test_bytes_go_from_one_card_to_the_other(area: Area) -> None:
    """Each card counts its own memory."""
    area("peers")


def test_a_pointer_knows_what_it_points_into(area: Area) -> None:
    """Where the memory begins, how long it is, and whose it is."""
    area("pointers")


def test_a_pointer_of_the_first_api_has_32_bits(machine: fenced.Machine) -> None:
    """Programs from before CUDA 3.2 have no room for more."""
    program = machine.start()
    program("context(); low = made('cuMemAlloc', MIB, kind=c_uint64)")
    assert 0 < program("low") < 2**32
    program("call('cuMemsetD8', low, 7, 1)")
    assert program("call('cuMemcpyDtoH', byref(back := c_uint()), low, 1) or back.value") == 7
    program("call('cuMemFree', low)")


def test_every_way_to_take_memory_takes_it_and_gives_it_back(machine: fenced.Machine) -> None:
    """By NVML's word on the process; at least as much as was asked for, and then all of it."""
    program = machine.start()
    program("context(); take_all()")
    before = machine.truth()[program.pid]
    size = 16 * fenced.MIB
    for name in program("list(WAYS)"):
        program(f"take({name!r}, {size})")
        assert machine.truth()[program.pid] >= before + size, name
        program("give_back()")
        assert machine.truth()[program.pid] == before, name


def test_a_card_is_full_when_its_last_byte_is_taken(machine: fenced.Machine) -> None:
    """All that NVML says is free can be had, and nothing more."""
    program = machine.start()
    program("context(1)")
    left = program("memory_info()")[0]
    assert left == 16 * fenced.GIB - fenced.CONTEXT_BYTES == program("card_memory(1)")["free"]
    assert program.code(f"alloc({left + 1})") == fenced.OUT_OF_MEMORY
    program(f"alloc({left})")
    assert program.code("alloc(1)") == fenced.OUT_OF_MEMORY
    assert program("card_memory(1)")["free"] == 0
    assert program("card_memory(0)")["used"] == 0
