"""``partage watch --then end`` ends what it has proof of, and no process of anybody else."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import msgspec
import pytest

from partage.fence import processes
from partage.local.state import leases
from tests import leaving_out, simulated_machines
from tests.local import sites, users
from tests.local.shared_machine import Machine

OUT = ("env", "-u", "LD_PRELOAD", f"LD_LIBRARY_PATH={simulated_machines.LIBRARIES}")
HOLD = (sys.executable, str(sites.PROGRAM), "hold", "3000")
ON_CARD_0 = {"CUDA_VISIBLE_DEVICES": "0"}
HERE = ("--memory", "2GiB", "--card", "0", "--name", "train")
LAST_PID = pathlib.Path("/proc/sys/kernel/ns_last_pid")
MOST_TRIES = 1000


def test_another_user_on_the_same_card_is_spared(machine: Machine) -> None:
    """What somebody started there without Partage is not a program's, whatever it holds."""
    greedy = machine.alice.run(*HERE, command=[*OUT, *HOLD])
    _wait_until_it_holds(greedy)
    other = _unleased(machine, machine.bob)

    said = _watched(machine)

    assert f"program train: process {greedy.pid} is outside its fence" in said
    assert said.endswith("it was ended\n")
    assert greedy.wait(sites.PATIENCE_S) == -signal.SIGKILL
    assert other.poll() is None


def test_what_the_same_user_started_without_a_lease_is_spared(machine: Machine) -> None:
    """A user is no proof: only descent from the program is."""
    greedy = machine.alice.run(*HERE, command=[*OUT, *HOLD])
    _wait_until_it_holds(greedy)
    own = _unleased(machine, machine.alice)

    assert _watched(machine).endswith("it was ended\n")

    assert greedy.wait(sites.PATIENCE_S) == -signal.SIGKILL
    assert own.poll() is None


def test_a_program_that_says_it_is_anothers_process_does_not_point_the_watch_at_it(
    machine: Machine,
) -> None:
    """A lease is its user's to write; the kernel says whose the process is."""
    machine.alice.holding(*HERE)
    other = _unleased(machine, machine.bob)
    _claim(machine, other.pid)

    said = _watched(machine)

    assert f"process {other.pid} is outside its fence" in said
    assert "it was not ended: it is not proven to be the tenant's own" in said
    assert other.poll() is None


def test_a_process_with_the_id_of_a_program_that_has_ended_is_spared(machine: Machine) -> None:
    """A child lives on, so the lease does, too; and its id is another process's by now."""
    program, child = _survived(machine)
    other = _reusing(machine, program)
    assert [row["pid"] for row in machine.root.view()["foreign"]] == [program]
    watch = machine.root.start("watch", "--then", "end")
    assert watch.stdout is not None
    assert watch.stderr is not None
    assert watch.stderr.readline().startswith("Watching 2 cards")
    greedy = machine.alice.run(
        "--memory", "2GiB", "--card", "0", "--name", "greedy", command=[*OUT, *HOLD]
    )
    _wait_until_it_holds(greedy)  # what is found after the other process was looked at, too

    assert f"program greedy: process {greedy.pid}" in watch.stdout.readline()

    assert machine.entry("train").pid == other.pid
    assert other.poll() is None
    os.kill(child, signal.SIGKILL)


def _wait_until_it_holds(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "holds 3000 MiB, 0\n", process.communicate()[1]


def _unleased(machine: Machine, user: users.User) -> subprocess.Popen[str]:
    """A process of a user on the card, with more than the program's share, without Partage."""
    started = user.program(*HOLD, env=_cards(machine))
    _wait_until_it_holds(started)
    return started


def _cards(machine: Machine) -> dict[str, str]:
    """What a program needs to meet the machine's cards by itself."""
    return {
        "LD_LIBRARY_PATH": str(simulated_machines.LIBRARIES),
        "SIMCUDA_CARDS": machine.root.environment["PARTAGE_SIMULATE"],
        "SIMCUDA_STATE": str(machine.root.folder / "machine"),
        **ON_CARD_0,
    }


def _watched(machine: Machine) -> str:
    """What root's watch says first."""
    watch = machine.root.start("watch", "--then", "end")
    assert watch.stdout is not None
    return watch.stdout.readline()


def _claim(machine: Machine, pid: int) -> None:
    """Let the program's lease say that it is this process."""
    folder, process = machine.root.state().leases, processes.stat(pid)
    lease = leases.find(folder, machine.entry("train").token)
    assert process is not None
    assert lease is not None
    assert lease.entry is not None
    started_ticks = process.started_ticks
    forged = msgspec.structs.replace(lease.entry, pid=pid, started_ticks=started_ticks)
    leases.rewrite(folder, forged)


def _survived(machine: Machine) -> tuple[int, int]:
    """The id of a program that has ended, and that of its child, which has the lease."""
    script = "sleep 600 & echo $!"
    program = machine.alice.run(*HERE, command=["sh", "-c", script])
    assert program.stdout is not None
    child = int(program.stdout.readline())
    assert program.wait(sites.PATIENCE_S) == 0
    return program.pid, child


def _reusing(machine: Machine, pid: int) -> subprocess.Popen[str]:
    """A process of the same user on the card, with a given id, without Partage."""
    if not os.access(LAST_PID, os.W_OK):
        leaving_out.leave_out("a process id of choice", f"{LAST_PID} cannot be written")
    for _ in range(MOST_TRIES):  # somebody else on this machine may get it first
        LAST_PID.write_text(str(pid - 1))
        started = machine.alice.program(*HOLD, env=_cards(machine))
        if started.pid == pid:
            _wait_until_it_holds(started)
            return started
        started.kill()
        started.wait()
    pytest.fail(f"nobody got process id {pid}")
