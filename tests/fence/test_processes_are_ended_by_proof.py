"""A process is ended if it is the one that is meant, and no other is, whatever id it has."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from partage.fence import processes
from tests import leaving_out


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that would live on."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def facts_of(pid: int) -> processes.Facts:
    """What the kernel tells of a process that lives."""
    facts = processes.facts(pid)
    assert facts is not None
    return facts


def test_facts_are_the_kernels(sleeper: subprocess.Popen[bytes]) -> None:
    """Its start, its id where it runs, and the cgroups it shares with whoever started it."""
    facts, own = facts_of(sleeper.pid), facts_of(os.getpid())
    assert (facts.pid, facts.inner_pid) == (sleeper.pid, sleeper.pid)
    assert facts.started_ticks >= own.started_ticks
    assert facts.cgroups == own.cgroups != ()


def test_the_inner_id_is_that_of_its_own_namespace() -> None:
    """As its fence writes it down."""
    if os.geteuid() != 0:
        leaving_out.leave_out("pid namespaces", "run the tests as root")
    words = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "echo; exec sleep 600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as outer:
        assert outer.stdout is not None
        outer.stdout.readline()
        child = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text())
        assert facts_of(child).inner_pid == 1
        outer.kill()


def test_who_has_ended_is_not_there() -> None:
    """Whether or not its parent has looked at it."""
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert processes.facts(process.pid) is None
    assert processes.facts(process.pid) is None


def test_the_one_that_is_meant_is_ended(sleeper: subprocess.Popen[bytes]) -> None:
    """At once, and nothing is said."""
    facts = facts_of(sleeper.pid)
    assert processes.end(facts.pid, facts.started_ticks, lambda now: now == facts) == ""
    assert sleeper.wait() == -signal.SIGKILL


def test_another_process_of_the_same_id_lives_on(sleeper: subprocess.Popen[bytes]) -> None:
    """It started at another moment."""
    facts = facts_of(sleeper.pid)
    why = processes.end(facts.pid, facts.started_ticks - 1, lambda _: True)
    assert "another process" in why
    assert sleeper.poll() is None


def test_a_process_that_is_somebody_elses_lives_on(sleeper: subprocess.Popen[bytes]) -> None:
    """Whose it is, is asked after it can no longer be mixed up."""
    facts = facts_of(sleeper.pid)
    why = processes.end(facts.pid, facts.started_ticks, lambda _: False)
    assert why == "it is not proven to be the tenant's own"
    assert sleeper.poll() is None


def test_one_that_has_ended_is_no_trouble(sleeper: subprocess.Popen[bytes]) -> None:
    """There is nothing left to do."""
    facts = facts_of(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    why = processes.end(facts.pid, facts.started_ticks, lambda _: True)
    assert why == "it has ended by itself"


def test_who_may_not_end_it_is_told_what_it_takes(sleeper: subprocess.Popen[bytes]) -> None:
    """Another user's process lives on."""
    if os.geteuid() != 0:
        leaving_out.leave_out("other users' processes", "run the tests as root")
    facts = facts_of(sleeper.pid)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setuid(65534)
        why = processes.end(facts.pid, facts.started_ticks, lambda _: True)
        os.write(writer, why.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert "CAP_KILL" in os.read(reader, 1000).decode()
    assert sleeper.poll() is None
    os.close(reader)
    os.close(writer)
