"""Memory stays counted for as long as anything keeps it, and what fits is never refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from partage.fence.store import limits
from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, MIB, OUT_OF_MEMORY

INVALID_DEVICE = 101
FORMS = ("cuMemFreeAsync", "cuMemFreeAsync_ptsz")


@pytest.mark.parametrize("form", FORMS)
def test_a_free_that_is_captured_frees_nothing(
    tenant: fenced.Tenant, process: fenced.Process, form: str
) -> None:
    """It is a node of a graph, which nobody may ever run."""
    process("kept = alloc(500 * MIB)")
    process("s = made('cuStreamCreate', 1); call('cuStreamBeginCapture_v2', s, 2)")
    process(f"answer({form!r}, kept, s)")
    process("answer('cuStreamEndCapture', s, byref(c_uint64()))")
    assert tenant.counted() == {process.pid: CONTEXT_BYTES + 500 * MIB} == tenant.machine.truth()
    assert process.code("alloc(500 * MIB)") == OUT_OF_MEMORY


BINDINGS = (
    "'cuMulticastBindMem', 1, 0, handle, 0, 2 * MIB",
    "'cuMulticastBindMem_v2', 1, 0, 0, handle, 0, 2 * MIB",
    "'cuMulticastBindAddr', 1, 0, at, 600 * MIB",
    "'cuMulticastBindAddr_v2', 1, 0, 0, at, 600 * MIB",
    "'cuLogicalEndpointBindMem', 1, 0, 0, handle, 0, 2 * MIB",
    "'cuLogicalEndpointBindAddr', 1, 0, 0, at, 600 * MIB",
)


def test_a_descriptor_that_was_exported_keeps_the_memory(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Until it is closed, which is seen when somebody is about to be refused."""
    process("handle = physical(600 * MIB)")
    process("shared = made('cuMemExportToShareableHandle', handle, 1, 0, kind=c_int)")
    process("call('cuMemRelease', handle)")
    assert tenant.counted() == {process.pid: CONTEXT_BYTES + 600 * MIB}
    assert process.code("alloc(500 * MIB)") == OUT_OF_MEMORY
    process("os.close(shared)")
    process("alloc(500 * MIB)")
    assert tenant.counted() == {process.pid: CONTEXT_BYTES + 500 * MIB} == tenant.machine.truth()


def test_what_the_driver_does_not_export_or_bind_is_not_kept(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """It is counted before the driver is asked, and no longer if that refuses."""
    process("handle = physical(600 * MIB)")
    assert process("answer('cuMemExportToShareableHandle', byref(c_int()), handle, 8, 0)") != 0
    process("at = addresses(600 * MIB); call('cuMemMap', at, 600 * MIB, 0, handle, 0)")
    for bind in BINDINGS:
        assert process(f"answer({bind}, 0)") != 0
    process("call('cuMemUnmap', at, 600 * MIB)")
    process("call('cuMemRelease', handle)")
    assert tenant.counted() == {process.pid: CONTEXT_BYTES} == tenant.machine.truth()


def test_the_driver_says_that_there_is_no_such_card(process: fenced.Process) -> None:
    """And not the fence, that there is no memory."""
    properties = "(c_int * 8)(1, 0, 1, 99)"
    create = f"call('cuMemCreate', byref(c_uint64()), 2 * MIB, byref({properties}), 0)"
    assert process.code(create) == INVALID_DEVICE


def test_a_thread_is_not_refused_what_fits_because_another_asks_for_too_much(
    machine: fenced.Machine, tmp_path: Path
) -> None:
    """What is taken for a moment, and given back, is room all the same."""
    tenant = machine.tenant(memory_bytes=CONTEXT_BYTES + 650 * MIB)
    greedy = fenced.compiled(tmp_path / "greedy", "greedy.c")
    ran = machine.run(greedy, "700", "64", "2000000", environment=tenant.environment)
    assert (ran.returncode, ran.stdout) == (0, "0\n"), ran.stderr
    assert tenant.usage().refused > 0


def test_the_peak_is_what_was_had_not_what_was_tried(machine: fenced.Machine) -> None:
    """A program that tries sizes until one fits never had those that the driver refused."""
    tenant = machine.tenant("unlimited", memory_bytes=limits.NO_QUOTA)
    process = tenant.started()
    assert process.code("alloc(64 * GIB)") == OUT_OF_MEMORY
    assert tenant.usage().peak_bytes == CONTEXT_BYTES
    process("free(alloc(700 * MIB)); alloc(100 * MIB)")
    assert tenant.usage().peak_bytes == CONTEXT_BYTES + 700 * MIB
