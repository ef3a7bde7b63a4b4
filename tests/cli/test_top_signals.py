"""Signals reach the processes of a tenant and nobody else, whatever the tenant claims."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from partage.cli.commands.top import signal_targets, signals
from partage.cli.display import pages
from tests import leaving_out

TIMEOUT_S = 30
SLEEPS = (sys.executable, "-c", "import time; time.sleep(600)")
# A shell that starts a child, says its id and waits; each has what it inherited.
PARENT = "sleep 600 & echo $! ; read line; wait"
_NOBODY = 65534

Started = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def started() -> Iterator[Started]:
    """Starts processes, and ends them with the test."""
    with contextlib.ExitStack() as stack:

        def start(*command: str, **more: object) -> subprocess.Popen[bytes]:
            words = command or SLEEPS
            process = subprocess.Popen(words, **more)  # type: ignore[call-overload]
            stack.enter_context(process)
            stack.callback(process.kill)
            return process  # type: ignore[no-any-return]

        yield start


@pytest.fixture
def lease(tmp_path: pathlib.Path) -> Iterator[int]:
    """A lease that is open for writing, to be inherited."""
    fd = os.open(tmp_path / "lease", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


@pytest.fixture
def target(tmp_path: pathlib.Path) -> pages.Target:
    """A tenant of this user that was granted something now."""
    return pages.Target(
        name="train",
        user="alice",
        uid=os.geteuid(),
        pid=0,
        processes=(),
        since=time.time(),
        lease=str(tmp_path / "lease"),
    )


def aimed(target: pages.Target, **changes: object) -> signals.Aim:
    """At a tenant with other processes."""
    return signals.Aim(msgspec.structs.replace(target, **changes), signal.SIGTERM)


def granted(process: subprocess.Popen[bytes]) -> dict[str, object]:
    """What the ledger says of a program that was granted something after it started."""
    return {"pid": process.pid, "since": time.time()}


def test_the_program_is_ended(started: Started, target: pages.Target) -> None:
    """Once it was asked for, and not before."""
    program = started()
    with contextlib.closing(aimed(target, **granted(program))) as aim:
        assert aim.question == f"Send SIGTERM to train (pid {program.pid}, alice)? [y/N]"
        assert program.poll() is None

        assert aim.send() == f"SIGTERM was sent to train (pid {program.pid}, alice)"

    assert program.wait(TIMEOUT_S) == -signal.SIGTERM


def test_children_are_ended_with_it(started: Started, target: pages.Target) -> None:
    """By descent: the fence says who they are, the kernel whose child they are."""
    program = started("/bin/sh", "-c", PARENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdout is not None
    child = int(program.stdout.readline())
    handle = os.pidfd_open(child)

    with contextlib.closing(aimed(target, processes=(child,), **granted(program))) as aim:
        assert f"pids {program.pid}, {child}, alice" in aim.question
        aim.send()

    assert program.wait(TIMEOUT_S) == -signal.SIGTERM
    assert _ends(handle)


def test_an_orphan_is_known_by_its_lease(
    started: Started, target: pages.Target, lease: int
) -> None:
    """The program has ended, and its id means nothing any more."""
    ended = started("/bin/true")
    ended.wait(TIMEOUT_S)
    orphan = started(pass_fds=(lease,))

    with contextlib.closing(aimed(target, pid=ended.pid, processes=(orphan.pid,))) as aim:
        assert f"(pid {orphan.pid}, alice)" in aim.question
        aim.send()

    assert orphan.wait(TIMEOUT_S) == -signal.SIGTERM


def test_whoever_only_looks_at_a_lease_is_not_its_tenant(
    started: Started, target: pages.Target, lease: int
) -> None:
    """`partage ps` of anybody has it open for a moment."""
    looking = os.open(target.lease, os.O_RDONLY)
    reader = started(pass_fds=(looking,))
    os.close(looking)

    assert not signal_targets.belongs(reader.pid, target)
    with pytest.raises(signals.CannotSignal, match="no process of train can be seen"):
        aimed(target, processes=(reader.pid,))
    assert reader.poll() is None


def test_a_tenant_cannot_name_a_stranger(started: Started, target: pages.Target) -> None:
    """A process that it claims, but that neither descends from it nor has its lease."""
    program, stranger = started(), started()

    with contextlib.closing(aimed(target, processes=(stranger.pid, 1), **granted(program))) as aim:
        assert f"(pid {program.pid}, alice)" in aim.question
        aim.send()

    assert program.wait(TIMEOUT_S) == -signal.SIGTERM
    assert stranger.poll() is None


def test_an_id_that_came_again_is_somebody_else(started: Started, target: pages.Target) -> None:
    """A program cannot have started after it was granted something."""
    later = started()

    with pytest.raises(signals.CannotSignal):
        aimed(target, pid=later.pid, since=time.time() - 100)
    assert later.poll() is None


def test_a_program_runs_as_its_user(started: Started, target: pages.Target) -> None:
    """A lease that names a process of another user does not lead root to it."""
    other = started()

    with pytest.raises(signals.CannotSignal):
        aimed(target, **granted(other), uid=os.geteuid() + 1)


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_some_ids_are_nobodys(target: pages.Target, pid: int) -> None:
    """Zero and less would be groups of processes, and one is init."""
    with pytest.raises(signals.CannotSignal):
        aimed(target, pid=pid, uid=0, since=time.time(), processes=(pid,))


def test_a_process_that_ends_before_the_answer(started: Started, target: pages.Target) -> None:
    """Its id may be another's by then; what was opened is still the old one."""
    program = started()
    with contextlib.closing(aimed(target, **granted(program))) as aim:
        program.kill()
        program.wait(TIMEOUT_S)

        assert aim.send() == f"SIGTERM to train: pid {program.pid}: it has ended"


def test_a_process_that_ended_but_was_not_waited_for(
    started: Started, target: pages.Target
) -> None:
    """It is still in the list of processes, and is not asked about."""
    program = started()
    since = granted(program)
    handle = os.pidfd_open(program.pid)
    program.kill()
    assert _ends(handle)

    with pytest.raises(signals.CannotSignal):
        aimed(target, **since)


def test_many_processes_are_not_all_named(
    started: Started, target: pages.Target, lease: int
) -> None:
    """The question fits on a line."""
    pids = tuple(started(pass_fds=(lease,)).pid for _ in range(5))

    with contextlib.closing(aimed(target, processes=pids)) as aim:
        assert f"(pids {pids[0]}, {pids[1]}, {pids[2]} and 2 more, alice)" in aim.question


def test_no_handle_is_left_open(started: Started, target: pages.Target) -> None:
    """After many questions, answered or not."""
    program = started()
    before = _handles()
    for _ in range(20):
        aimed(target, processes=(os.getppid(),), **granted(program)).close()
        with pytest.raises(signals.CannotSignal):
            aimed(target, pid=os.getppid(), uid=-1)

    assert _handles() == before


_AS_NOBODY = """
import os, signal, sys, time
from partage.cli.commands.top import signals
from partage.cli.display import pages
os.setresuid({nobody}, {nobody}, {nobody})
target = pages.Target(name="train", user="root", uid=0, pid=int(sys.argv[1]), processes=(),
                          since=time.time(), lease="/nowhere")
print(signals.Aim(target, signal.SIGKILL).send())
"""


def test_somebody_elses_program_is_told_to_be_so(started: Started) -> None:
    """The kernel refuses, and the line says what to do."""
    if os.geteuid() != 0:
        leaving_out.leave_out("a second user", "only root can be somebody else")
    program = started()

    done = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY.format(nobody=_NOBODY), str(program.pid)],
        capture_output=True,
        text=True,
        check=True,
    )

    said = f"SIGKILL to train: pid {program.pid}: it belongs to another user; ask them, or use sudo"
    assert done.stdout.strip() == said
    assert program.poll() is None


def _handles() -> int:
    return len(list(pathlib.Path("/proc/self/fd").iterdir()))


def _ends(handle: int) -> bool:
    """Whether a process ends soon."""
    try:
        return bool(select.select([handle], [], [], TIMEOUT_S)[0])
    finally:
        os.close(handle)
