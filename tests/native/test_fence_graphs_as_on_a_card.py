"""Whatever a program does with graphs, a share answers as a card of its size does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, OUT_OF_MEMORY

GRAPHS = 3
LINES = {
    "launch": "call('cuGraphLaunch', runnable[{0}], 0)",
    "upload": "call('cuGraphUpload', runnable[{0}], 0)",
    "free": "free(pointers[{0}])",
    "update": "call('cuGraphExecUpdate_v2', runnable[{0}], graphs[{0}], byref((c_uint64 * 3)()))",
    "make again": "call('cuGraphExecDestroy', runnable[{0}]); runnable[{0}] = ready({0})",
    "linear": "linear.append(alloc(({0} + 1) * 500 * MIB))",
    "free linear": "free(linear.pop()) if linear else None",
    "pooled": "pooled.append(stream_pointer(({0} + 1) * 400 * MIB))",
    "free pooled": "call('cuMemFreeAsync', pooled.pop(), 0) if pooled else None",
    "wait": "call('cuCtxSynchronize')",
    "trim": "call('cuDeviceGraphMemTrim', 0)",
}
KINDS = ("keeps", "frees first", "frees")  # what becomes of what a graph allocates
# Sizes of which two or three fit, and many launches: then what is whose matters.
graphs = st.lists(
    st.tuples(st.integers(8, 16), st.sampled_from(KINDS)), min_size=GRAPHS, max_size=GRAPHS
)
numbers = st.integers(0, GRAPHS - 1)
steps = st.lists(
    st.tuples(st.just("launch"), numbers) | st.tuples(st.sampled_from(sorted(LINES)), numbers),
    min_size=6,
    max_size=30,
)


@pytest.fixture
def pair(tmp_path: Path, machine: fenced.Machine) -> Iterator[tuple[fenced.Process, ...]]:
    """A program in a share of 4 GiB, and one on a card of 4 GiB."""
    behind = machine.tenant(memory_bytes=4 * GIB).started()
    with fenced.machine(tmp_path / "small", "1x4GiB") as small:
        on_card = small.start()
        on_card("context()")
        yield behind, on_card


def begin(process: fenced.Process, kinds: list[tuple[int, str]]) -> None:
    """Graphs of so many hundred MiB and these kinds, in a process that has nothing else."""
    process("from tests.native.ways_graphs import *; made_so, linear, pooled = [], [], []")
    for hundreds, kind in kinds:
        process(f"made_so.append(kept_or_freed({hundreds * 100} * MIB, {kind == 'frees'}))")
    process("graphs, pointers = [list(parts) for parts in zip(*made_so)]")
    process(f"flags = {[int(kind == 'frees first') for _, kind in kinds]}")
    process("ready = lambda i: made('cuGraphInstantiateWithFlags', graphs[i], flags[i])")
    process(f"runnable = [ready(i) for i in range({GRAPHS})]")


def end(process: fenced.Process) -> None:
    """Give everything back."""
    process("[call('cuGraphExecDestroy', one) for one in runnable]")
    process("[answer('cuMemFree_v2', pointer) for pointer in pointers + linear + pooled]")
    process("[call('cuGraphDestroy', one) for one in graphs]")
    process("call('cuCtxSynchronize'); call('cuDeviceGraphMemTrim', 0)")


def code_on_card(process: fenced.Process, line: str) -> int:
    """A driver does not return by itself what graphs do not use; the fence does."""
    code = process.code(line)
    if code != OUT_OF_MEMORY:
        return code
    process("call('cuDeviceGraphMemTrim', 0)")
    return process.code(line)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(kinds=graphs, taken=steps)
def test_a_share_answers_as_a_card_of_its_size(
    pair: tuple[fenced.Process, ...],
    machine: fenced.Machine,
    kinds: list[tuple[int, str]],
    taken: list[tuple[str, int]],
) -> None:
    """Step by step, and the driver never has more for it than the share."""
    behind, on_card = pair
    begin(behind, kinds)
    begin(on_card, kinds)
    try:
        for name, number in taken:
            line = LINES[name].format(number)
            assert behind.code(line) == code_on_card(on_card, line), (name, number)
            assert machine.truth()[behind.pid] <= 4 * GIB
    finally:
        end(behind)
        end(on_card)
    assert machine.truth() == {behind.pid: CONTEXT_BYTES}
