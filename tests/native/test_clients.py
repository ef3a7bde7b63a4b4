"""Real clients of CUDA run on the simulated driver, directly and behind the fence.

libcudart cannot: it needs tables of the driver that NVIDIA does not document. What its users make
of the driver (PyTorch, JAX, NCCL) is replayed instead, call by call: clients/sim_replays.c.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from native import compilers, elf, libraries
from partage.fence.store import limits
from tests import leaving_out
from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, LIBRARIES, MIB

ROOT = libraries.SOURCES.parent
FITS_MIB = 500  # beside the context, in a quota of a GiB
STEP = 20 * MIB  # by which sequences take memory
LAUNCHES = 40  # of each client at least


@dataclasses.dataclass(frozen=True)
class Client:
    """A client, and how it says that there is no memory left."""

    program: str
    package: str  # of Python; empty: it is a program in C
    refused: str


CLIENTS = {
    "cuda.bindings": Client("sim_bindings", "cuda.bindings", "Refused: CUDA_ERROR_OUT_OF_MEMORY"),
    "cuda.core": Client("sim_core", "cuda.core", "CUDAError: CUDA_ERROR_OUT_OF_MEMORY"),
    "numba-cuda": Client(
        "sim_numba", "numba_cuda", "CudaAPIError: [<CUresult.CUDA_ERROR_OUT_OF_MEMORY: 2>]"
    ),
    "C": Client("sim_linked", "", "CUDA_ERROR_OUT_OF_MEMORY"),
}
SEQUENCES = ("cudaMalloc", "cudaMallocAsync", "expandable segments", "NCCL", "torch.cuda.graph")

# How a client runs: without a fence, with a quota of memory by one way in or the other, and by both
# with one of time as well.
QUOTAS: dict[str, dict[str, Any] | None] = {
    "direct": None,
    "fenced": {},
    "fenced in the driver's place": {},
    "fenced and paced": {"mode": limits.Mode.FIXED, "share_millionths": 300_000},
}
WAYS_IN = {"fenced in the driver's place": "place", "fenced and paced": "both"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clients in C, linked with -lcuda as anybody's program is."""
    made = tmp_path_factory.mktemp("clients")
    (made / "libcuda.so").symlink_to(LIBRARIES / "libcuda.so.1")
    compiler = compilers.system(*(f"-isystem{path}" for path in libraries.header_folders()))
    for name in ("sim_linked", "sim_replays"):
        source = fenced.CLIENTS / f"{name}.c"
        compiler.link(made / name, [source], f"-L{made}", "-lcuda", "-ldl")
    return made


def python(name: str) -> list[str]:
    """A client in Python."""
    return [sys.executable, "-m", f"tests.native.clients.{name}"]


def start(
    machine: fenced.Machine, tenant: fenced.Tenant | None, *command: str, way: str = ""
) -> fenced.Process:
    """Start a client, behind the fence if it is a tenant's."""
    fence = tenant.environments[WAYS_IN.get(way, "preload")] if tenant else {}
    environment = {"PYTHONPATH": str(ROOT), **fence}
    return machine.run_in_background(list(command), environment)


def ends_without_a_trace(
    machine: fenced.Machine, tenant: fenced.Tenant | None, process: fenced.Process
) -> None:
    """Having given all back, it has but a context and its code; when it has ended, nothing.

    The fence's account is the driver's at both times.
    """
    truth = machine.truth()
    assert CONTEXT_BYTES <= truth[process.pid] < CONTEXT_BYTES + MIB
    assert tenant is None or tenant.counted() == truth
    assert process.end() == ""
    assert machine.truth() == {}
    assert tenant is None or tenant.counted() == {}


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("way", QUOTAS)
def test_a_client_works_within_its_share(
    machine: fenced.Machine, folder: Path, way: str, name: str
) -> None:
    """It sees its share as the card, computes, and is refused more in its own words."""
    client, quota = CLIENTS[name], QUOTAS[way]
    tenant = None if quota is None else machine.tenant(**quota)
    card_bytes = 16 * GIB if tenant is None else GIB
    if client.package and not importlib.util.find_spec(client.package):
        leaving_out.leave_out(name, "it is not installed")
    command = python(client.program) if client.package else [str(folder / client.program)]
    sizes = str(FITS_MIB), str(card_bytes // MIB + 1)
    process = start(machine, tenant, *command, *sizes, way=way)

    report = process.heard()
    assert (report["name"], report["total"]) == ("Simulated GPU", card_bytes)
    assert report.get("whole", card_bytes) == card_bytes
    for refused in (report["refused"], *report["refused_too"]):
        assert refused.startswith(client.refused)
    assert {report[key] for key in ("computed", "intact", "given_back") if key in report} == {True}
    assert report.get("compiled", 1) == 1  # a kernel of its own
    assert report.get("took_ms", 1) >= LAUNCHES * 0.01  # by the card's own clock
    if tenant:
        assert tenant.usage().launches >= LAUNCHES * bool(quota)
    ends_without_a_trace(machine, tenant, process)


def test_a_monitor_sees_the_whole_machine(machine: fenced.Machine) -> None:
    """nvidia-ml-py without a fence: each process with its memory, and errors as its exceptions."""
    one, other = machine.start(), machine.start()
    one("context(); alloc(100 * MIB)")
    other("context()")
    report = start(machine, None, *python("sim_pynvml"), "0", "0").heard()
    assert report["name"] == "Simulated GPU"
    assert report["uuid"] == machine.uuids[0]
    assert report["total"] == report["total_v2"] == 16 * GIB
    assert report["used"] == 2 * CONTEXT_BYTES + 100 * MIB
    assert report["processes"] == {
        str(one.pid): CONTEXT_BYTES + 100 * MIB,
        str(other.pid): CONTEXT_BYTES,
    }
    assert report["refused"] == "NVMLError_InvalidArgument: Invalid Argument"


def test_a_monitor_behind_the_fence_sees_its_own_share(
    machine: fenced.Machine, tenant: fenced.Tenant
) -> None:
    """nvidia-ml-py as a tenant: the quota as the card, and no process of anybody else."""
    neighbour = machine.start()
    neighbour("context(); alloc(4 * GIB)")
    own = tenant.started()
    own("alloc(100 * MIB)")
    report = start(machine, tenant, *python("sim_pynvml"), "0", "0").heard()
    assert report["total"] == report["total_v2"] == GIB
    assert report["used"] == CONTEXT_BYTES + 100 * MIB
    assert report["processes"] == {str(own.pid): CONTEXT_BYTES + 100 * MIB}
    assert report["refused"] == "NVMLError_InvalidArgument: Invalid Argument"


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("way", QUOTAS)
def test_what_users_of_the_runtime_do_works_within_their_share(
    machine: fenced.Machine, folder: Path, way: str, sequence: str
) -> None:
    """They get all of the share and no more, by functions that they have looked up.

    A replay, since libcudart itself cannot run on a driver that is simulated.
    """
    quota = QUOTAS[way]
    tenant = None if quota is None else machine.tenant(**quota)
    room = (16 * GIB if tenant is None else GIB) - CONTEXT_BYTES
    process = start(machine, tenant, str(folder / "sim_replays"), sequence, way=way)
    assert process.heard() == room // STEP * STEP
    ends_without_a_trace(machine, tenant, process)


def test_the_client_in_c_is_linked_as_with_the_real_driver(folder: Path) -> None:
    """By the name that the real driver's library has, which the loader then finds."""
    assert "libcuda.so.1" in elf.File((folder / "sim_linked").read_bytes()).libraries()
