"""Both sides of the shared files: the real library in a CUDA program, and what we read and set."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from partage.core import errors
from partage.fence import usage
from partage.fence.levels import catalog, hook
from partage.fence.store import limits, roots, tenants
from tests import leaving_out, simulated_machines

MIB = 1 << 20
CONTEXT_MIB = 256
OUT_OF_MEMORY = 2
JOB = catalog.Subject(name="job")
CLIENT = pathlib.Path(__file__).with_name("cuda_client.py")
Start = Callable[[], "Client"]


class Client:
    """A program of the tenant, which does what it is told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert self.heard() == "ready"

    def tell(self, command: str) -> None:
        """Do this."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()

    def heard(self) -> str:
        """What came of it."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, command: str) -> int:
        """Do this, and say what came of it."""
        self.tell(command)
        return int(self.heard())


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> dict[str, str]:
    """A simulated machine with two cards."""
    if not simulated_machines.FENCE.exists():
        leaving_out.leave_out("libpartage.so", "build it with `python -m native`")
    return simulated_machines.machine(tmp_path, context_mib=str(CONTEXT_MIB))


@pytest.fixture
def requested(machine: dict[str, str]) -> limits.Limits:
    """A GiB of the machine's first card."""
    script = """
import ctypes, uuid
cuda, device, raw = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
assert cuda.cuInit(0) == cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDeviceGetUuid_v2(raw, device) == 0
print(uuid.UUID(bytes=bytes(raw)))
"""
    card = limits.CardLimits(
        uuid=f"GPU-{simulated_machines.python(script, environment=machine).strip()}",
        memory_bytes=1024 * MIB,
        context_bytes=CONTEXT_MIB * MIB,
    )
    return limits.Limits((card,))


@pytest.fixture
def start(machine: dict[str, str], root: roots.Root, requested: limits.Limits) -> Iterator[Start]:
    """Start a program behind the fence."""
    environment = machine | hook.Hook(root, inherited=machine).apply(JOB, requested).environment
    with contextlib.ExitStack() as running:

        def start() -> Client:
            process = subprocess.Popen(
                [sys.executable, "-I", str(CLIENT)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            running.enter_context(process)
            running.callback(process.kill)
            return Client(process)

        yield start


def used(root: roots.Root) -> int:
    """What the tenant uses, in MiB."""
    return usage.snapshot(root, "job").cards[0].used_bytes // MIB


def test_what_a_program_uses_is_read(root: roots.Root, start: Start) -> None:
    """Its context and its memory; what was refused; the most there ever was; and who it is."""
    client = start()
    assert client.ask("alloc 500") == 0
    assert client.ask("alloc 500") == OUT_OF_MEMORY

    used = usage.snapshot(root, "job")

    expected = (CONTEXT_MIB + 500) * MIB
    assert used.processes == (usage.ProcessUsage(client.process.pid, (expected,)),)
    (card,) = used.cards
    assert (card.used_bytes, card.peak_bytes, card.refused) == (expected, expected, 1)


def test_two_programs_have_one_quota(root: roots.Root, start: Start) -> None:
    """What one of them holds the other cannot have, until it is killed."""
    first, second = start(), start()
    assert first.ask("alloc 300") == 0
    assert second.ask("alloc 300") == OUT_OF_MEMORY
    assert used(root) == 2 * CONTEXT_MIB + 300

    first.process.kill()
    first.process.wait()

    assert used(root) == CONTEXT_MIB
    assert second.ask("alloc 300") == 0


def test_a_program_that_runs_sees_its_limits_change(root: roots.Root, start: Start) -> None:
    """At its next call: more, and then less."""
    client = start()
    assert client.ask("total") == 1024
    tenants.change(root, "job", limits.Change(memory_bytes=4096 * MIB))
    assert client.ask("total") == 4096
    assert client.ask("alloc 2000") == 0
    tenants.change(root, "job", limits.Change(memory_bytes=512 * MIB))
    assert client.ask("alloc 1") == OUT_OF_MEMORY


def test_a_tenant_without_a_quota_has_the_card(root: roots.Root, start: Start) -> None:
    """As large as it is."""
    tenants.change(root, "job", limits.Change(memory_bytes=limits.NO_QUOTA))

    client = start()

    assert client.ask("total") == 16384
    assert client.ask("alloc 8000") == 0


def test_launches_are_counted_while_compute_is_limited(root: roots.Root, start: Start) -> None:
    """Not before; and a paused one goes on when it is resumed."""
    client = start()
    assert client.ask("launch") == 0
    assert usage.snapshot(root, "job").cards[0].launches == 0
    tenants.change(root, "job", limits.Change(compute_percent=50, paused=True))
    client.tell("launch")
    tenants.change(root, "job", limits.Change(paused=False))

    assert client.heard() == "0"
    assert usage.snapshot(root, "job").cards[0].launches == 1


def test_the_fence_comes_down_when_the_programs_have_ended(
    root: roots.Root, start: Start, requested: limits.Limits
) -> None:
    """Not before."""
    fence = hook.Hook(root)
    client = start()
    client.ask("alloc 1")
    with pytest.raises(errors.FenceError, match="1 processes of tenant job still use CUDA"):
        fence.release(JOB, requested)

    client.process.kill()
    client.process.wait()

    fence.release(JOB, requested)
    assert tenants.names(root) == []
