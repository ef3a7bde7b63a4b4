"""NVML's process ids are those of whoever asks, as the kernel translates them for a real driver."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import leaving_out
from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES

HERE = Path(__file__).parent
INSIDE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture
def inside(machine: fenced.Machine) -> fenced.Process:
    """A program in a pid namespace of its own, as in a container, with a context."""
    if os.geteuid() != 0:
        leaving_out.leave_out("pid namespaces", "run the tests as root")
    command = [*INSIDE, sys.executable, "-I", "-S", str(HERE / "client.py")]
    process = machine.run_in_background(command)
    process("context()")
    return process


def child(pid: int) -> int:
    """The one child of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def test_a_process_in_a_container_has_the_hosts_pid_for_the_host(
    machine: fenced.Machine, inside: fenced.Process
) -> None:
    """Not the one that it sees itself, which may be anybody's here."""
    assert inside("os.getpid()") == 1
    assert machine.truth() == {child(inside.pid): CONTEXT_BYTES}


def test_in_the_container_it_has_its_own(inside: fenced.Process) -> None:
    """A reader beside it sees what the process sees."""
    assert inside("processes(0)") == {"1": CONTEXT_BYTES}


def test_who_cannot_see_a_process_is_not_told_of_it(
    machine: fenced.Machine, inside: fenced.Process
) -> None:
    """Neither of one outside nor of one in another container; the memory is shown as used."""
    outside = machine.start()
    outside("context()")
    assert inside("processes(0)") == {"1": CONTEXT_BYTES}
    assert inside("card_memory(0)")["used"] == 2 * CONTEXT_BYTES
    assert machine.truth() == {outside.pid: CONTEXT_BYTES, child(inside.pid): CONTEXT_BYTES}


def test_containers_with_the_same_pids_are_told_apart(machine: fenced.Machine) -> None:
    """Each is the first process where it runs."""
    if os.geteuid() != 0:
        leaving_out.leave_out("pid namespaces", "run the tests as root")
    command = [*INSIDE, sys.executable, "-I", "-S", str(HERE / "client.py")]
    crowd = [machine.run_in_background(command) for _ in range(4)]
    for size, process in enumerate(crowd, start=1):
        process(f"[context(), alloc({size} << 20)]")
    expected = {
        child(process.pid): CONTEXT_BYTES + (size << 20)
        for size, process in enumerate(crowd, start=1)
    }
    assert machine.truth() == expected
