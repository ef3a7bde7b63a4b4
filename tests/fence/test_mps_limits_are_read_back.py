"""The fence mps, on a stand-in for the control daemon that speaks the same commands."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

from partage.core import errors
from partage.fence import levels, limits, mps, mps_control
from tests.fence import making

MIB = 1 << 20
JOB = levels.Subject(name="job")
CARDS = limits.Limits(
    tuple(
        limits.CardLimits(
            uuid=making.uuid(number),
            memory_bytes=memory_mib * MIB,
            mode=limits.Mode.FIXED,
            share_millionths=250_000,
        )
        for number, memory_mib in ((1, 1044), (2, 512))
    )
)


@pytest.fixture
def fence(short_path: pathlib.Path, mps_program: str) -> mps.Mps:
    """A fence over the stand-in."""
    return mps.Mps(short_path, program=mps_program)


def ask(applied: levels.Applied, program: str, command: str) -> str:
    """What a tenant's daemon says, asked with the environment that its processes get."""
    done = subprocess.run(
        [program],
        input=f"{command}\n",
        env={**os.environ, **applied.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_tenant_gets_a_daemon_of_its_own(fence: mps.Mps, mps_program: str) -> None:
    """Its limits are that daemon's defaults, and its processes are led to it."""
    other = levels.Subject(name="other")
    mine, theirs = fence.apply(JOB, CARDS), fence.apply(other, making.share(1))

    assert ask(mine, mps_program, "get_default_active_thread_percentage") == "25.0"
    assert ask(mine, mps_program, "get_default_device_pinned_mem_limit 1") == "512M"
    assert ask(theirs, mps_program, "get_default_active_thread_percentage") == "100.0"
    assert ask(theirs, mps_program, "get_default_device_pinned_mem_limit 0") == "2G"
    assert mine.environment["CUDA_VISIBLE_DEVICES"] == f"{making.uuid(1)},{making.uuid(2)}"
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in mine.environment
    for subject in (JOB, other):
        fence.release(subject, CARDS)


def test_the_answer_is_what_is_in_force(fence: mps.Mps) -> None:
    """A cap and a quota; a guarantee, which MPS cannot give, is not claimed."""
    asked = limits.Limits(
        (
            limits.CardLimits(
                uuid=making.uuid(1),
                memory_bytes=700 * MIB + 5,
                mode=limits.Mode.BURST,
                share_millionths=300_000,
                ceiling_millionths=800_000,
            ),
        )
    )

    (held,) = fence.apply(JOB, asked).limits.cards

    assert held.memory_bytes == 700 * MIB
    assert (held.mode, held.share_millionths) == (limits.Mode.FIXED, 800_000)
    fence.release(JOB, asked)


def test_once_more_is_no_harm(fence: mps.Mps, mps_program: str) -> None:
    """A daemon that runs is used again; one for other cards is replaced."""
    first = fence.apply(JOB, CARDS)
    pid = (pathlib.Path(first.environment["CUDA_MPS_PIPE_DIRECTORY"]) / PID).read_text()

    again = fence.apply(JOB, CARDS)
    assert again == first
    assert (pathlib.Path(first.environment["CUDA_MPS_PIPE_DIRECTORY"]) / PID).read_text() == pid
    swapped = fence.apply(JOB, making.share(3))
    assert ask(swapped, mps_program, "get_default_device_pinned_mem_limit 0") == "2G"
    fence.release(JOB, CARDS)
    fence.release(JOB, CARDS)


PID = "nvidia-cuda-mps-control.pid"


def test_a_change_is_told_to_servers_that_run(fence: mps.Mps, mps_program: str) -> None:
    """Their next clients obey it, and so do the next servers."""
    applied = fence.apply(JOB, CARDS)
    ask(applied, mps_program, "start_server -uid 1000")
    wanted = limits.Limits(
        tuple(
            limits.changed(card, limits.Change(compute_percent=40, memory_bytes=3 * making.GIB))
            for card in CARDS.cards
        )
    )

    held = fence.change(JOB, wanted).limits

    assert held == wanted
    assert ask(applied, mps_program, "get_active_thread_percentage 1000") == "40.0"
    assert ask(applied, mps_program, "get_device_pinned_mem_limit 1000 0") == "3G"
    assert ask(applied, mps_program, "get_default_device_pinned_mem_limit 1") == "3G"
    fence.release(JOB, wanted)


def test_release_ends_the_daemon_and_forgets_it(fence: mps.Mps, short_path: pathlib.Path) -> None:
    """Nothing is left that a next tenant of the name could meet."""
    applied = fence.apply(JOB, CARDS)
    pipes = pathlib.Path(applied.environment["CUDA_MPS_PIPE_DIRECTORY"])
    assert pipes.is_dir()

    fence.release(JOB, CARDS)

    assert list((short_path / "mps").iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (
            "other-percentage",
            "mps: default_active_thread_percentage was set to 25 % and is 26 % when read back",
        ),
        (
            "other-memory",
            "mps: default_device_pinned_mem_limit 0 was set to 1044 MiB and is 77 MiB when read",
        ),
        ("garbage", "the daemon answers 'get_server_list' with 'what?'"),
        ("refuses", "'set_default_active_thread_percentage 25' failed: Permission denied"),
        ("stillborn", "the control daemon was started and does not answer"),
    ],
)
def test_a_daemon_that_does_something_else_is_an_error(
    fence: mps.Mps,
    short_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    says: str,
) -> None:
    """Never a success; and the daemon does not stay behind."""
    monkeypatch.setenv("STAND_IN", fault)

    with pytest.raises(errors.FenceError) as told:
        fence.apply(JOB, CARDS)

    assert says in str(told.value)
    assert told.value.instead
    assert list((short_path / "mps").iterdir()) == []


def test_a_server_that_does_not_take_a_change_is_an_error(
    fence: mps.Mps, mps_program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defaults alone are not enough: its clients would go on with the old limits."""
    monkeypatch.setenv("STAND_IN", "server-ignores")
    applied = fence.apply(JOB, CARDS)
    ask(applied, mps_program, "start_server -uid 1000")
    wanted = limits.Limits(
        tuple(limits.changed(card, limits.Change(compute_percent=40)) for card in CARDS.cards)
    )

    with pytest.raises(errors.FenceError, match="percentage 1000 was set to 40 % and is 25 %"):
        fence.change(JOB, wanted)
    fence.release(JOB, CARDS)


def test_a_daemon_that_does_not_answer_is_told_and_not_forgotten(
    short_path: pathlib.Path, mps_program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that hangs is named, so that somebody can end it."""
    fence = mps.Mps(short_path, program=mps_program, timeout_s=0.5)
    fence.apply(JOB, CARDS)
    with monkeypatch.context() as patched:
        patched.setenv("STAND_IN", "silent")
        with pytest.raises(errors.FenceError, match=r"control daemon \d+ does not answer; .*kill"):
            fence.release(JOB, CARDS)
    fence.release(JOB, CARDS)


def test_what_mps_cannot_do_is_refused(fence: mps.Mps, short_path: pathlib.Path) -> None:
    """Before anything is started: to pause, to count less than a MiB, to differ between cards."""
    one, other = CARDS.cards
    for cards, says in (
        ((limits.changed(one, limits.Change(paused=True)),), "cannot pause"),
        ((limits.changed(one, limits.Change(memory_bytes=1)),), "whole MiB"),
        ((one, limits.changed(other, limits.Change(compute_percent=30))), "one percentage"),
    ):
        with pytest.raises(errors.FenceError, match=says):
            fence.apply(JOB, limits.Limits(cards))
    assert not (short_path / "mps").exists()


def test_a_quota_cannot_be_lifted(fence: mps.Mps) -> None:
    """There is no such command; claiming it would be wrong."""
    fence.apply(JOB, CARDS)
    free = tuple(
        limits.changed(card, limits.Change(memory_bytes=limits.NO_QUOTA)) for card in CARDS.cards
    )

    with pytest.raises(errors.FenceError, match="cannot lift the memory limit"):
        fence.change(JOB, limits.Limits(free))
    with pytest.raises(errors.FenceError, match="has no daemon for these cards"):
        fence.change(JOB, making.share(9))
    fence.release(JOB, CARDS)


def test_a_machine_without_the_program_is_told(short_path: pathlib.Path) -> None:
    """With what brings it."""
    fence = mps.Mps(short_path, program="/nowhere/nvidia-cuda-mps-control")

    with pytest.raises(errors.FenceError, match=r"cannot be run \(No such file.*compute utilities"):
        fence.apply(JOB, CARDS)
    fence.release(JOB, CARDS)


def test_a_path_that_is_too_long_for_a_socket_is_told(
    tmp_path: pathlib.Path, mps_program: str
) -> None:
    """A daemon would start, bind nothing, and say nothing."""
    fence = mps.Mps(tmp_path / ("x" * 90), program=mps_program)

    with pytest.raises(errors.FenceError, match=r"too long for the name of a socket; .*107 bytes"):
        fence.apply(JOB, CARDS)


def test_limits_in_our_own_environment_are_not_passed_on(
    fence: mps.Mps, mps_program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon takes its defaults from there, and another one's pipes would be used."""
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere")
    monkeypatch.setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=5M")
    free = making.share(1, memory_bytes=limits.NO_QUOTA)

    applied = fence.apply(JOB, free)

    assert applied.limits == free
    assert ask(applied, mps_program, "get_default_device_pinned_mem_limit 0") == ""
    fence.release(JOB, free)


@pytest.mark.parametrize(
    ("memory_mib", "shown", "same"),
    [
        (1044, (1, "G"), True),
        (2048, (2, "G"), True),
        (2047, (2, "G"), False),
        (512, (512, "M"), True),
        (1024, (1025, "M"), False),
    ],
)
def test_an_amount_is_compared_as_the_daemon_prints_it(
    memory_mib: int, shown: tuple[int, str], *, same: bool
) -> None:
    """Cut to whole GiB where it prints GiB."""
    unit = {"M": MIB, "G": 1024 * MIB}[shown[1]]

    assert mps_control.Amount(shown[0] * unit, unit).is_of(memory_mib * MIB) is same
