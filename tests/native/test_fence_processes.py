"""Processes that fork, exec, spawn, close what is not theirs, come in crowds and die in any way."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, MIB, NOT_INITIALIZED, OUT_OF_MEMORY


def test_a_child_of_a_process_with_cuda_has_none_and_costs_nothing(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """The driver says so; nothing of the parent's is counted again, or lost."""
    process("kept = alloc(500 * MIB)")
    for line in ("alloc(MIB)", "free(kept)", "context()", "stream_pointer(MIB)"):
        assert process.code(f"in_a_child({line!r})") == NOT_INITIALIZED
    assert process.code("alloc(500 * MIB)") == OUT_OF_MEMORY
    expected = {process.pid: CONTEXT_BYTES + 500 * MIB}
    assert tenant.counted() == tenant.machine.truth() == expected
    process("free(kept)")
    assert tenant.counted() == {process.pid: CONTEXT_BYTES}


def test_a_child_that_lives_on_does_not_keep_its_parents_memory(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """What a killed process had is free although its child has all its files and mappings."""
    process("alloc(500 * MIB)")
    child = process("child_that_stays()")
    process.kill()
    try:
        assert tenant.counted() == {}
        other = tenant.started()
        assert other.code("alloc(700 * MIB)") == 0
        os.kill(child, 0)  # it is there
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_process_that_forks_before_it_begins_has_children_of_their_own(
    tenant: fenced.Tenant,
) -> None:
    """Each has its own slot, and all have one quota."""
    process = tenant.start()
    process("card_memory()")  # the fence is there already, CUDA is not
    alone = "[context(), alloc(600 * MIB), processes()][2]"
    for _ in range(2):
        (pid,) = process(f"in_a_child({alone!r})")
        assert int(pid) != process.pid
    process("context(); alloc(300 * MIB)")
    assert process.code(f"in_a_child({alone!r})") in (OUT_OF_MEMORY, NOT_INITIALIZED)
    assert tenant.counted() == {process.pid: CONTEXT_BYTES + 300 * MIB}


@pytest.mark.parametrize("way", ["preload", "both"])
def test_a_fork_during_the_first_lookup_leaves_no_child_waiting(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path, way: str
) -> None:
    """The thread that was looking is not there in the child, and must not have left a lock.

    It may have left the loader's own lists half done, by which one child in 200,000 crashed.
    """
    forker = fenced.compiled(tmp_path / "forker", "forker.c", "-pthread")
    ran = machine.run(forker, "1500", environment=tenant.environments[way])
    assert ran.returncode == 0
    assert ran.stdout in ("1500 0\n", "1500 1\n")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_works_as_without_a_fence(
    machine: fenced.Machine, tenant: fenced.Tenant, method: str
) -> None:
    """Children of each kind begin with CUDA themselves, within the one quota."""
    script = [sys.executable, str(fenced.HERE / "workers.py"), method]
    unfenced = machine.run(*script)
    assert unfenced.stdout.split() == ["0", "0", "0"], unfenced.stderr
    behind = machine.run(*script, environment=tenant.environment)
    assert behind.stdout.split() == ["0", "0", str(OUT_OF_MEMORY)], behind.stderr
    assert tenant.counted() == {}


def test_a_program_that_replaces_another_begins_anew(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """exec keeps the pid and the fence, and nothing of what was counted."""
    process("alloc(500 * MIB)")
    process.tell("os.execv(sys.executable, [sys.executable, '-I', '-S', __file__])")
    process("context()")
    assert tenant.counted() == tenant.machine.truth() == {process.pid: CONTEXT_BYTES}
    assert process.code("alloc(700 * MIB)") == 0


@pytest.mark.parametrize(
    "start",
    [
        "os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)",
        "subprocess.run(['/bin/true'])",
        "subprocess.run(['/bin/true'], preexec_fn=lambda: None)",
        "os.system('true')",
    ],
    ids=["posix_spawn", "vfork", "fork", "system"],
)
def test_a_program_that_starts_others_keeps_what_it_has(
    tenant: fenced.Tenant, process: fenced.Process, start: str
) -> None:
    """However they are started; and theirs is the same fence."""
    process("import subprocess; kept = alloc(500 * MIB)")
    for _ in range(3):
        process(start)
    assert tenant.counted() == {process.pid: CONTEXT_BYTES + 500 * MIB}
    assert process.code("alloc(500 * MIB)") == OUT_OF_MEMORY
    process("free(kept)")
    assert tenant.counted() == {process.pid: CONTEXT_BYTES}


def test_a_program_that_closes_all_descriptors_is_still_counted(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Daemons do that. What it has is not given to others, and it gets no more than its share."""
    process("kept = alloc(500 * MIB)")
    process("close_all()")
    other = tenant.start()
    assert other.code("context(); alloc(300 * MIB)") == OUT_OF_MEMORY
    assert tenant.counted()[process.pid] == CONTEXT_BYTES + 500 * MIB
    assert process.code("alloc(500 * MIB)") == OUT_OF_MEMORY
    process("free(kept)")
    assert tenant.counted()[process.pid] == CONTEXT_BYTES


def test_descriptors_of_the_program_are_never_touched(
    tenant: fenced.Tenant, process: fenced.Process, tmp_path: Path
) -> None:
    """Not even where a number was ours before: nothing is closed, locked or left behind."""
    process("import fcntl, struct")
    process("alloc(MIB); close_all()")
    path = tmp_path / "theirs"
    path.write_bytes(bytes(4096))
    process(f"theirs = [os.open({str(path)!r}, os.O_RDWR) for _ in range(64)]")
    dead = tenant.started()
    dead("alloc(300 * MIB)")
    dead.kill()
    process("card_memory(); before = sorted(os.listdir('/proc/self/fd'))")
    assert process.code("alloc(600 * MIB)") == 0
    process("card_memory(); processes(); memory_info(); in_a_child('1')")
    assert process("sorted(os.listdir('/proc/self/fd')) == before")
    process("[os.fstat(fd) for fd in theirs]")
    inode = path.stat().st_ino
    assert f":{inode} " not in Path("/proc/locks").read_text()


def test_no_descriptor_is_open_between_calls(tenant: fenced.Tenant) -> None:
    """A program that counts its descriptors, or hands all of them on, finds none of ours."""
    process = tenant.started()
    process("alloc(MIB); card_memory(); processes()")
    opened = process(
        "[os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')[:-1]]"
    )
    assert not [path for path in opened if str(tenant.folder) in path]


def test_a_process_without_descriptors_left_is_refused_and_recovers(
    tenant: fenced.Tenant,
) -> None:
    """Where none can be opened there is no slot to be had; afterwards there is."""
    process = tenant.start()
    process("call('cuInit', 0); card_memory()")
    process("import resource; _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)")
    process("resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))")
    assert process.code("made('cuDevicePrimaryCtxRetain', 0)") == OUT_OF_MEMORY
    process("resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))")
    process("context()")
    assert process.code("alloc(MIB)") == 0


class Storm(NamedTuple):
    """A tenant whose processes begin all at once, a third of them by each way in."""

    tenant: fenced.Tenant
    crowds: list[fenced.Process]

    def refused(self) -> int:
        """How many of them did not get all they asked for, once all have asked."""
        return sum(int(crowd.line()) for crowd in self.crowds)


@contextlib.contextmanager
def storm(folder: Path, quota_bytes: int) -> Iterator[Storm]:
    """300 processes, each of which asks for a context of 1 MiB and for another MiB."""
    with fenced.machine(folder, context_mib="1") as small:
        tenant = small.tenant(memory_bytes=quota_bytes, context_bytes=MIB)
        command = [str(fenced.compiled(folder / "crowd", "crowd.c")), "100", str(MIB)]
        entered = tenant.environments.values()
        crowds = [small.run_in_background(command, environment) for environment in entered]
        yield Storm(tenant, crowds)


def test_300_processes_begin_at_once_by_every_way_in(tmp_path: Path) -> None:
    """All get their context and their memory, and the accounts are the driver's."""
    with storm(tmp_path, 2 * 300 * MIB) as begun:
        tenant = begun.tenant
        assert begun.refused() == 0
        counted = tenant.counted()
        assert len(counted) == 300
        assert counted == tenant.machine.truth()
        assert set(counted.values()) == {2 * MIB}
        for environment in tenant.environments.values():
            assert tenant.machine.start(environment).code("context()") == OUT_OF_MEMORY
        assert [crowd.last_words() for crowd in begun.crowds] == [""] * 3


def test_300_processes_that_want_too_much_get_the_quota_to_the_byte(tmp_path: Path) -> None:
    """By whichever way they came in: nobody has more, and nothing that was left is refused."""
    quota_bytes = 400 * MIB
    with storm(tmp_path, quota_bytes) as begun:
        assert begun.refused() >= 100
        held = {pid: used for pid, used in begun.tenant.counted().items() if used}
        assert held == begun.tenant.machine.truth()
        assert sum(held.values()) == begun.tenant.usage().peak_bytes == quota_bytes


def test_the_slots_of_the_dead_are_used_again(machine: fenced.Machine, tmp_path: Path) -> None:
    """More processes than there are slots, one after another: sums stay short, and all get one."""
    tenant = machine.tenant()
    program = fenced.compiled(tmp_path / "linked", "linked.c")
    for _ in range(5):
        assert machine.run(program, "500", environment=tenant.environment).stdout == "0 0\n"
    region = (tenant.folder / "region").read_bytes()
    assert int.from_bytes(region[16:20], sys.byteorder) == 1  # slots_used


@pytest.mark.parametrize(
    "death", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT], ids=lambda s: s.name
)
def test_however_a_process_dies_its_memory_comes_back(
    tenant: fenced.Tenant, process: fenced.Process, death: signal.Signals
) -> None:
    """At once, for one who waits for nothing."""
    survivor = tenant.started()
    process("alloc(500 * MIB); import faulthandler; faulthandler.disable()")
    process.running.send_signal(death)
    process.running.wait(fenced.TIMEOUT_S)
    assert survivor.code("alloc(700 * MIB)") == 0
    assert tenant.counted() == tenant.machine.truth()


def test_what_a_dead_process_had_is_not_promised_before_it_is_there(tmp_path: Path) -> None:
    """Its heir is refused by the fence as long as the driver would refuse it, and not a bit less.

    On a card with no more than the quota, whatever the driver refuses was promised too early.
    """
    with fenced.machine(tmp_path, f"{(1024 + 32) * MIB}", context_mib="16") as small:
        tenant = small.tenant(context_bytes=16 * MIB)
        heir = fenced.compiled(tmp_path / "heir", "heir.c")
        waiting = small.run_in_background([str(heir), "900"], tenant.environment)
        refused = 0
        for _ in range(60):
            victim = tenant.started()
            victim("alloc(900 * MIB)")
            waiting.tell("")
            assert waiting.line() == "asking"
            victim.kill()
            refused += int(waiting.line())
        assert refused == tenant.usage().refused


def test_threads_have_one_account(tmp_path: Path, machine: fenced.Machine) -> None:
    """Memory of every kind, and contexts, taken and given back by six threads at once."""
    tenant = machine.tenant()
    program = fenced.compiled(tmp_path / "threads", "threads.c")
    ran = machine.run(program, "3000", environment=tenant.environment)
    assert (ran.stdout, ran.stderr) == ("0\n", "")
    assert tenant.usage().refused > 0
    assert tenant.usage().peak_bytes <= GIB
