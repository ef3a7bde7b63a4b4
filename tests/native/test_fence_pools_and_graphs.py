"""Memory that is kept, reused, shared or outlives its handle is counted as long as it is there."""

from __future__ import annotations

import pytest

from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, INVALID_VALUE, MIB, OUT_OF_MEMORY

KEEP_ALL = "call('cuMemPoolSetAttribute', {pool}, 4, byref(c_uint64(2**64 - 1)))"
DEFAULT_POOL = "made('cuDeviceGetDefaultMemPool', 0)"
NOT_SUPPORTED = 801
GRAPHS = "from tests.native.ways_graphs import *"
UPDATES = {
    "cuGraphExecUpdate": "call('cuGraphExecUpdate', runnable, {}, 0, byref(c_uint64()))",
    "cuGraphExecUpdate_v2": "call('cuGraphExecUpdate_v2', runnable, {}, byref((c_uint64 * 3)()))",
}


def assert_agreed(tenant: fenced.Tenant, process: fenced.Process, expected: int) -> None:
    """The driver and the fence both have so much for the process."""
    assert tenant.counted() == tenant.machine.truth() == {process.pid: expected}


def test_what_a_pool_keeps_is_counted_and_given_up_to_whoever_needs_it(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """A pool that returns nothing by itself does so before anything is refused."""
    process(KEEP_ALL.format(pool=DEFAULT_POOL))
    process("pointer = stream_pointer(600 * MIB)")
    process("call('cuMemFreeAsync', pointer, 0); call('cuCtxSynchronize')")
    assert_agreed(tenant, process, CONTEXT_BYTES + 600 * MIB)
    process("linear = alloc(700 * MIB)")
    assert_agreed(tenant, process, CONTEXT_BYTES + 700 * MIB)
    assert process.code("stream_pointer(600 * MIB)") == OUT_OF_MEMORY
    process("free(linear)")
    assert process.code("stream_pointer(600 * MIB)") == 0


def test_a_pool_reuses_what_it_has_at_the_quota(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Free and allocate again, with no wait in between, more than half of the quota each time."""
    process(KEEP_ALL.format(pool=DEFAULT_POOL))
    for _ in range(5):
        process("pointer = stream_pointer(700 * MIB)")
        process("call('cuMemFreeAsync', pointer, 0)")
    assert_agreed(tenant, process, CONTEXT_BYTES + 700 * MIB)


def test_memory_of_a_destroyed_pool_is_counted_until_the_last_of_it_is_freed(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """CUDA keeps such a pool as long as any of its memory is in use."""
    process("own = pool()")
    process("parts = [made('cuMemAllocFromPoolAsync', 100 * MIB + 512, own, 0) for _ in range(3)]")
    process("call('cuMemPoolDestroy', own)")
    before = tenant.machine.truth()
    assert tenant.counted() == before
    assert before[process.pid] >= CONTEXT_BYTES + 300 * MIB
    process("call('cuMemFreeAsync', parts.pop(), 0); free(parts.pop())")
    assert tenant.counted()[process.pid] >= tenant.machine.truth()[process.pid]
    process("call('cuMemFreeAsync', parts.pop(), 0); call('cuCtxSynchronize')")
    assert_agreed(tenant, process, CONTEXT_BYTES)


def test_a_graph_is_launched_again_with_the_memory_it_has(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Nothing more is asked for, even if it would not fit a second time."""
    process("runnable = instantiated(nested(600 * MIB)[0])")
    for _ in range(4):
        process("call('cuGraphLaunch', runnable, 0)")
    process("call('cuCtxSynchronize')")
    assert_agreed(tenant, process, CONTEXT_BYTES + 600 * MIB)
    process("call('cuDeviceGraphMemTrim', 0)")
    assert_agreed(tenant, process, CONTEXT_BYTES)
    process("call('cuGraphLaunch', runnable, 0); call('cuGraphExecDestroy', runnable)")
    process("call('cuCtxSynchronize'); call('cuDeviceGraphMemTrim', 0)")
    assert_agreed(tenant, process, CONTEXT_BYTES)


def test_memory_of_graphs_is_given_up_to_whoever_needs_it(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """And a graph that lost it that way gets it back when it runs again, or is refused."""
    process("runnable = instantiated(nested(600 * MIB)[0])")
    process("call('cuGraphLaunch', runnable, 0); call('cuCtxSynchronize')")
    process("linear = alloc(700 * MIB)")
    assert_agreed(tenant, process, CONTEXT_BYTES + 700 * MIB)
    assert process.code("call('cuGraphLaunch', runnable, 0)") == OUT_OF_MEMORY
    process("free(linear)")
    process("call('cuGraphLaunch', runnable, 0)")
    assert_agreed(tenant, process, CONTEXT_BYTES + 600 * MIB)


def test_a_graph_with_the_handle_of_another_does_not_inherit_its_demand(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Handles come again; what a destroyed graph needed is no matter of the next one."""
    process("empty = made('cuGraphCreate', 0); made('cuGraphAddEmptyNode', empty, 0, 0)")
    process("full = graph(600 * MIB)[0]")
    process("first = instantiated(full); call('cuGraphExecDestroy', first)")
    process("next(e for e in iter(lambda: instantiated(empty), None) if e == first)")
    process("alloc(700 * MIB)")
    assert process.code("call('cuGraphLaunch', first, 0)") == 0


def test_a_graph_that_is_uploaded_as_it_is_made_is_counted(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """One of the flags of its making says so."""
    upload = "made('cuGraphInstantiateWithParams', graph({})[0], byref(InstantiateParameters(2)))"
    assert process.code(upload.format("900 * MIB")) == OUT_OF_MEMORY
    assert_agreed(tenant, process, CONTEXT_BYTES)
    process(upload.format("300 * MIB"))
    assert tenant.counted() == tenant.machine.truth()


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("form", ["spread({})", "nested({})[0]"])
def test_a_graph_that_was_updated_is_held_to_what_it_takes_now(
    tenant: fenced.Tenant, process: fenced.Process, update: str, form: str
) -> None:
    """More than when it was instantiated, at whatever depth; and less again."""
    process(GRAPHS)
    process(f"small, large, medium = [{form.format('n * MIB')} for n in (2, 4096, 600)]")
    process("runnable = instantiated(small); call('cuGraphLaunch', runnable, 0)")
    assert_agreed(tenant, process, CONTEXT_BYTES + 2 * MIB)
    process(UPDATES[update].format("large"))
    assert process.code("call('cuGraphLaunch', runnable, 0)") == OUT_OF_MEMORY
    process(UPDATES[update].format("medium"))
    process("call('cuGraphLaunch', runnable, 0)")
    assert_agreed(tenant, process, CONTEXT_BYTES + 600 * MIB)


def test_an_update_that_fails_changes_no_demand(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Of another shape: the graph takes what it took, and is still held to it."""
    process("small, large = nested(2 * MIB)[0], nested(4 * GIB)[0]")
    process("runnable = instantiated(large); flat = made('cuGraphCreate', 0)")
    assert process.code(UPDATES["cuGraphExecUpdate_v2"].format("flat"))
    assert process.code("call('cuGraphLaunch', runnable, 0)") == OUT_OF_MEMORY
    process("runnable = instantiated(small)")
    assert process.code(UPDATES["cuGraphExecUpdate_v2"].format("large"))  # is instantiated itself
    process("call('cuGraphLaunch', runnable, 0)")
    assert_agreed(tenant, process, CONTEXT_BYTES + 2 * MIB)


def test_a_child_of_an_executable_graph_gets_no_memory_nodes(
    process: fenced.Process,
) -> None:
    """What such a child takes the place of is not told, so the sum could not be known."""
    process(GRAPHS)
    process("outer, big, node = nested(2 * MIB, 1)[0], spread(4 * GIB), c_uint64()")
    process("call('cuGraphGetNodes', outer, byref(node), byref(c_size_t(1)))")
    process("runnable, child = instantiated(outer), NodeParameters(kind=CHILD)")
    process("child.child = Child(big, 0)")
    for line in (
        "call('cuGraphExecChildGraphNodeSetParams', runnable, node, big)",
        "call('cuGraphExecNodeSetParams', runnable, node, byref(child))",
    ):
        assert process.code(line) == NOT_SUPPORTED


def test_a_child_without_memory_is_the_drivers_to_judge(process: fenced.Process) -> None:
    """Children that take nothing are changed as without a fence."""
    process(GRAPHS)
    process("inner, outer, node = made('cuGraphCreate', 0), made('cuGraphCreate', 0), c_uint64()")
    process("made('cuGraphAddEmptyNode', inner, 0, 0)")
    process("node.value = made('cuGraphAddChildGraphNode', outer, 0, 0, inner)")
    process("runnable, child = instantiated(outer), NodeParameters(kind=CHILD)")
    process("child.child = Child(inner, 0)")
    process("call('cuGraphExecChildGraphNodeSetParams', runnable, node, inner)")
    process("call('cuGraphExecNodeSetParams', runnable, node, byref(child))")
    process("made('cuGraphAddEmptyNode', inner, 0, 0)")
    another_shape = "call('cuGraphExecChildGraphNodeSetParams', runnable, node, inner)"
    assert process.code(another_shape) == INVALID_VALUE


@pytest.mark.parametrize("depth", [34, 1000])
def test_graphs_are_counted_however_deep_they_are_nested(
    tenant: fenced.Tenant, process: fenced.Process, depth: int
) -> None:
    """Neither is the depth a way around the quota, nor is it refused."""
    process(f"runnable = instantiated(nested(4 * GIB, {depth})[0])")
    assert process.code("call('cuGraphLaunch', runnable, 0)") == OUT_OF_MEMORY
    process(f"runnable = instantiated(nested(600 * MIB, {depth})[0])")
    process("call('cuGraphLaunch', runnable, 0)")
    assert_agreed(tenant, process, CONTEXT_BYTES + 600 * MIB)


def test_a_graph_that_cannot_be_read_is_not_instantiated(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Without memory to read it into nobody knows what it takes."""
    process(f"{GRAPHS}; import resource; wide = made('cuGraphCreate', 0)")
    process("[made('cuGraphAddEmptyNode', wide, 0, 0) for _ in range(100_000)]")
    process("address = lambda most: resource.setrlimit(resource.RLIMIT_AS, (most, -1))")
    process("pages = int(open('/proc/self/statm').read().split()[0])")
    process("address(pages * 4096 + 400_000)")
    assert process.code("instantiated(wide)") == OUT_OF_MEMORY
    process("address(-1)")
    assert process.code("instantiated(wide)") == 0


@pytest.fixture
def two_cards(machine: fenced.Machine) -> fenced.Tenant:
    """A tenant with a share of each of two cards."""
    return machine.tenant("two-cards", cards=(0, 1))


def test_a_graph_on_two_cards_is_counted_on_both(two_cards: fenced.Tenant) -> None:
    """Whichever of its nodes comes last."""
    process = two_cards.started()
    process(f"{GRAPHS}; context(1)")
    process("runnable = instantiated(spread(2 * MIB, 600 * MIB))")
    for _ in range(3):
        process("call('cuGraphLaunch', runnable, 0)")
    for card, taken in enumerate((2 * MIB, 600 * MIB)):
        expected = {process.pid: CONTEXT_BYTES + taken}
        assert two_cards.counted(card) == two_cards.machine.truth(card) == expected


@pytest.mark.parametrize("sizes", ["4096 * MIB, 2 * MIB", "2 * MIB, 4096 * MIB"])
def test_a_graph_that_does_not_fit_on_one_card_takes_nothing_on_the_other(
    two_cards: fenced.Tenant, sizes: str
) -> None:
    """It does not run at all, so nothing stays taken for it anywhere."""
    process = two_cards.started()
    process(f"{GRAPHS}; context(1)")
    before = [two_cards.counted(card) for card in (0, 1)]
    process(f"runnable = instantiated(spread({sizes}))")
    assert process.code("call('cuGraphLaunch', runnable, 0)") == OUT_OF_MEMORY
    assert [two_cards.counted(card) for card in (0, 1)] == before
    process("call('cuGraphExecDestroy', runnable)")


def test_graphs_that_keep_their_memory_fill_each_card(two_cards: fenced.Tenant) -> None:
    """Each takes more than half of the quota of the first card, and little of the second."""
    process = two_cards.started()
    process(f"{GRAPHS}; context(1)")
    launch = "call('cuGraphLaunch', instantiated(spread(700 * MIB, 2 * MIB, frees=False)), 0)"
    process(launch)
    assert process.code(launch) == OUT_OF_MEMORY
    expected = {process.pid: CONTEXT_BYTES + 700 * MIB}
    assert two_cards.counted() == two_cards.machine.truth() == expected


def test_a_graph_whose_memory_went_to_another_one_has_none(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Graphs of a device share what they free; who ran before may find it taken."""
    process("first, pointer = graph(300 * MIB)")
    process("first, second = [instantiated(g) for g in (first, graph(300 * MIB)[0])]")
    process("call('cuGraphLaunch', first, 0); free(pointer); call('cuCtxSynchronize')")
    process("call('cuGraphLaunch', second, 0); alloc(400 * MIB)")
    assert process.code("call('cuGraphLaunch', first, 0)") == OUT_OF_MEMORY
    assert_agreed(tenant, process, CONTEXT_BYTES + 700 * MIB)


def test_what_a_pool_takes_in_large_steps_is_counted(machine: fenced.Machine) -> None:
    """Real drivers' steps are larger than what is asked for; what does not fit is undone."""
    tenant = machine.tenant("steps")
    process = tenant.started(SIMCUDA_POOL_MIB="32")
    process("pointer = stream_pointer(MIB)")
    assert_agreed(tenant, process, CONTEXT_BYTES + 32 * MIB)
    process("linear = alloc(720 * MIB)")
    assert process.code("stream_pointer(32 * MIB)") == OUT_OF_MEMORY
    assert_agreed(tenant, process, CONTEXT_BYTES + 752 * MIB)


def test_what_a_graph_takes_beyond_its_demand_is_counted_at_once(machine: fenced.Machine) -> None:
    """It runs already; but nobody else gets what is not there any more, and nobody waits."""
    tenant = machine.tenant("beyond")
    process, other = tenant.started(SIMCUDA_POOL_MIB="64"), tenant.started()
    process("linear = alloc(500 * MIB); runnable = instantiated(nested(2 * MIB)[0])")
    process("call('cuGraphLaunch', runnable, 0)")
    expected = {process.pid: CONTEXT_BYTES + 564 * MIB, other.pid: CONTEXT_BYTES}
    assert tenant.counted() == tenant.machine.truth() == expected
    assert tenant.usage().peak_bytes == sum(expected.values())
    assert other.code("alloc(10 * MIB)") == OUT_OF_MEMORY
    process("free(linear)")
    assert other.code("alloc(10 * MIB)") == 0


def test_memory_of_another_process_is_counted_where_it_is_mapped(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Its creator may end before the other does; then only the other has it."""
    other = tenant.started()
    process("handle = physical(200 * MIB)")
    shared = process("[made('cuMemExportToShareableHandle', handle, 1, 0, kind=c_int)][0]")
    other(f"shared = os.open('/proc/{process.pid}/fd/{shared}', os.O_RDWR)")
    other("handle = made('cuMemImportFromShareableHandle', shared, 1)")
    both = {process.pid: CONTEXT_BYTES + 200 * MIB, other.pid: CONTEXT_BYTES}
    assert tenant.counted() == both
    assert other("answer('cuMemMap', 4096, 200 * MIB, 0, handle, 0)") != 0
    assert tenant.counted() == both
    other("at = addresses(200 * MIB); call('cuMemMap', at, 200 * MIB, 0, handle, 0)")
    assert tenant.counted() == dict.fromkeys(both, CONTEXT_BYTES + 200 * MIB)
    process.kill()
    assert tenant.counted() == {other.pid: CONTEXT_BYTES + 200 * MIB}
    other("call('cuMemRelease', handle); call('cuMemUnmap', at, 200 * MIB)")
    assert_agreed(tenant, other, CONTEXT_BYTES)


def test_memory_of_another_process_is_not_mapped_beyond_the_quota(
    machine: fenced.Machine, tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Not even that of another tenant."""
    stranger = machine.tenant("stranger", memory_bytes=4 * GIB).started()
    stranger("handle = physical(2 * GIB)")
    shared = stranger("made('cuMemExportToShareableHandle', handle, 1, 0, kind=c_int)")
    process(f"shared = os.open('/proc/{stranger.pid}/fd/{shared}', os.O_RDWR)")
    process("handle, at = made('cuMemImportFromShareableHandle', shared, 1), addresses(2 * GIB)")
    assert process.code("call('cuMemMap', at, 2 * GIB, 0, handle, 0)") == OUT_OF_MEMORY
    assert process.code("call('cuMemRelease', handle)") == 0
    assert tenant.counted() == {process.pid: CONTEXT_BYTES}


def test_a_primary_context_is_counted_as_long_as_anybody_retains_it(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Twice retained, it goes with the second release, and what was in it with it."""
    process("made('cuDevicePrimaryCtxRetain', 0); alloc(100 * MIB)")
    process("call('cuDevicePrimaryCtxRelease_v2', 0)")
    assert_agreed(tenant, process, CONTEXT_BYTES + 100 * MIB)
    process("call('cuDevicePrimaryCtxRelease_v2', 0)")
    assert tenant.counted() == {process.pid: 0}
    assert tenant.machine.truth() == {}
    process("context(); alloc(700 * MIB)")
    assert_agreed(tenant, process, CONTEXT_BYTES + 700 * MIB)


def test_handles_of_contexts_that_come_again_start_from_nothing(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """A context often gets the handle of the last one, and its memory the same addresses."""
    for _ in range(20):
        process("own = made('cuCtxCreate_v2', 0, 0)")
        process("pointers = [alloc(10 * MIB) for _ in range(10)]; free(pointers.pop())")
        assert_agreed(tenant, process, 2 * CONTEXT_BYTES + 90 * MIB)
        process("call('cuCtxDestroy_v2', own)")
        assert_agreed(tenant, process, CONTEXT_BYTES)
