"""A tenant sees its share as if it were the card, and its processes as if there were no others."""

from __future__ import annotations

import functools

import pytest

from tests.local import sites
from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, MIB

INSUFFICIENT_SIZE = 7


@pytest.fixture
def neighbour(machine: fenced.Machine) -> fenced.Process:
    """A program of another tenant on the same card."""
    process = machine.tenant("neighbour", memory_bytes=8 * GIB).started()
    process("alloc(2 * GIB)")
    return process


def test_cuda_shows_the_share(tenant: fenced.Tenant, neighbour: fenced.Process) -> None:
    """Total and free are the tenant's, over all its processes, whatever the neighbour has."""
    one, other = tenant.started(), tenant.started()
    one("alloc(100 * MIB)")
    left = GIB - 2 * CONTEXT_BYTES - 100 * MIB
    for process in (one, other):
        assert process("memory_info()") == [left, GIB]
        assert process("total_memory()") == GIB


def test_nvml_shows_the_share(tenant: fenced.Tenant, neighbour: fenced.Process) -> None:
    """In both forms; what is used and what is free are together what there is."""
    process = tenant.started()
    process("alloc(100 * MIB)")
    used = CONTEXT_BYTES + 100 * MIB
    assert process("card_memory()") == {"total": GIB, "used": used, "free": GIB - used}
    assert process("card_memory_v2()") == {
        "total": GIB,
        "reserved": 0,
        "used": used,
        "free": GIB - used,
    }


def test_a_process_that_only_looks_sees_the_share_too(
    tenant: fenced.Tenant, neighbour: fenced.Process
) -> None:
    """As a monitor does, with NVML alone: it takes no slot, and sees the others' memory."""
    worker, monitor = tenant.started(), tenant.start()
    assert monitor("card_memory()") == {
        "total": GIB,
        "used": CONTEXT_BYTES,
        "free": GIB - CONTEXT_BYTES,
    }
    assert monitor("processes()") == {str(worker.pid): CONTEXT_BYTES}
    assert list(tenant.counted()) == [worker.pid]
    worker.kill()
    assert monitor("processes()") == {}
    while monitor("card_memory()['used']"):
        pass  # who polls is told of a death a few milliseconds later at most


@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
def test_processes_of_the_tenant_are_listed_and_no_others(
    tenant: fenced.Tenant, neighbour: fenced.Process, version: str
) -> None:
    """With what each of them has; graphics and MPS have none."""
    one, other = tenant.started(), tenant.started()
    one("alloc(100 * MIB)")
    expected = {str(one.pid): CONTEXT_BYTES + 100 * MIB, str(other.pid): CONTEXT_BYTES}
    assert one(f"processes(0, {version!r})") == other(f"processes(0, {version!r})") == expected
    for kind in ("Graphics", "MPSCompute"):
        assert one(f"processes(0, {version!r}, {kind!r})") == {}
    assert len(tenant.machine.truth()) == 3


def test_who_has_no_room_is_told_how_much_it_takes(tenant: fenced.Tenant) -> None:
    """As NVML does it: a number, and that the array was too small."""
    one, _ = tenant.started(), tenant.started()
    assert one("how_many_processes()") == [INSUFFICIENT_SIZE, 2]


def test_utilisation_of_others_is_not_shown(
    tenant: fenced.Tenant, neighbour: fenced.Process
) -> None:
    """Of the processes that keep the card busy, a tenant sees its own."""
    own = tenant.started()
    work = "call('cuLaunchKernel', kernel, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)"
    for process in (own, neighbour):
        process("module = made('cuModuleLoadData', PTX)")
        process("kernel = made('cuModuleGetFunction', module, b'nothing')")

    def seen(question: str) -> bool:
        """Whether both are shown as busy, which lasts a second: a busy machine may miss it."""
        for process in (own, neighbour):
            process(f"for _ in range(2000): {work}")
            process("call('cuCtxSynchronize')")
        try:
            theirs, ours = tenant.machine.observer(question), own(question)
        except fenced.Refused:  # nobody was busy
            return False
        assert set(ours) <= {own.pid}
        return ours != [] and set(theirs) == {own.pid, neighbour.pid}

    for question in ("busy_pids()", "busy_pids_in_full()"):
        sites.eventually(functools.partial(seen, question))


def test_a_card_that_is_smaller_than_the_quota_is_shown_as_it_is(machine: fenced.Machine) -> None:
    """A quota beyond the card does not make it larger."""
    process = machine.tenant(memory_bytes=64 * GIB).started()
    assert process("total_memory()") == process("memory_info()")[1] == 16 * GIB
    assert process("card_memory()['total']") == 16 * GIB


def test_what_is_free_is_never_more_than_the_card_has(
    machine: fenced.Machine, neighbour: fenced.Process
) -> None:
    """Where quotas add up to more than the card, what neighbours took is not shown as free."""
    process = machine.tenant(memory_bytes=15 * GIB).started()
    left = 16 * GIB - 2 * GIB - 2 * CONTEXT_BYTES
    assert process("memory_info()") == [left, 15 * GIB]


def test_a_lowered_limit_leaves_nothing_free_and_not_less(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """A tenant with more than the new limit has 0 bytes free, not a number below 0."""
    process("alloc(500 * MIB)")
    tenant.change(memory_bytes=300 * MIB)
    assert process("memory_info()") == [0, 300 * MIB]
    assert process("card_memory()['free']") == 0


def test_each_card_has_its_own_share(machine: fenced.Machine) -> None:
    """A tenant's numbers of cards are not the machine's: what counts is which card it is."""
    tenant = machine.tenant(cards=(1,), memory_bytes=2 * GIB)
    process = tenant.started()
    assert process("total_memory(0)") == process("card_memory(0)")["total"] == 2 * GIB
    assert process("processes(0)") == {str(process.pid): CONTEXT_BYTES}
    assert machine.truth(1) == {process.pid: CONTEXT_BYTES}


def test_a_form_of_32_bits_is_filled_as_far_as_it_goes(tenant: fenced.Tenant) -> None:
    """The first forms of these calls know no more than 4 GiB, and write no more than 4 bytes."""
    process = tenant.started()
    process("left, total, size = ((c_uint * 2)(7, 7) for _ in range(3))")
    process("call('cuMemGetInfo', left, total); call('cuDeviceTotalMem', size, 0)")
    assert process("[list(left), list(total), list(size)]") == [
        [GIB - CONTEXT_BYTES, 7],
        [GIB, 7],
        [GIB, 7],
    ]
    tenant.change(memory_bytes=8 * GIB)
    process("call('cuMemGetInfo', left, total)")
    assert process("[left[0], total[0]]") == [2**32 - 1, 2**32 - 1]
    assert process("memory_info()")[1] == 8 * GIB > 4 * GIB + MIB
