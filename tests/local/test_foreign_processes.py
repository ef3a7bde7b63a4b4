"""GPU programs that Partage did not start: their memory is taken, and they are shown as foreign."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pwd
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from partage.core.quantities import MIB
from partage.devices import nvml
from partage.fence import processes
from partage.local.machine import machine
from partage.local.state import entries
from tests.local import foreign_programs, installations, sites
from tests.local.sites import Site

CARD_MIB, CONTEXT_MIB = 16 * 1024, 256
NO_WAIT = ("--no-wait", "--", "echo", "ran")


@pytest.fixture
def strangers(site: Site) -> Iterator[foreign_programs.Strangers]:
    """Those of a site."""
    with foreign_programs.on(site) as made:
        yield made


def test_their_memory_is_not_granted(site: Site, strangers: foreign_programs.Strangers) -> None:
    """What they have of a card, to the MiB and with their contexts, is taken; the rest is not."""
    strangers.using(6000)
    free_mib = CARD_MIB - 6000 - CONTEXT_MIB
    card = site.view()["cards"][0]
    assert (card["foreign_mib"], card["free_mib"]) == (6000 + CONTEXT_MIB, free_mib)
    assert card["granted_mib"] == 0
    first = ("--card", "0", "--memory")
    assert site.partage("run", *first, f"{free_mib + 1}MiB", *NO_WAIT).returncode == 75
    assert site.partage("run", *first, f"{free_mib}MiB", *NO_WAIT).stdout == "ran\n"


def test_they_are_shown_as_foreign(site: Site, strangers: foreign_programs.Strangers) -> None:
    """With the card, the process id, the user and the command."""
    stranger = strangers.using(100, card=1)
    view = site.view()
    (foreign,) = view["foreign"]
    assert foreign == {
        "index": 1,
        "uuid": view["cards"][1]["uuid"],
        "pid": stranger.pid,
        "user": pwd.getpwuid(os.geteuid()).pw_name,
        "command": f"{sys.executable} {sites.PROGRAM} hold 100",
        "used_bytes": (100 + CONTEXT_MIB) * MIB,
    }
    assert view["tenants"] == []
    table = site.partage("ps").stdout
    assert str(stranger.pid) in table
    assert "FOREIGN" in table


def test_a_card_that_they_fill_is_not_handed_out(
    site: Site, strangers: foreign_programs.Strangers
) -> None:
    """New programs get another card, and then none."""
    strangers.using(CARD_MIB - CONTEXT_MIB, card=0)
    site.holding("--memory", "9GiB", "--name", "elsewhere")
    assert [tenant["index"] for tenant in site.view()["tenants"]] == [1]
    done = site.partage("run", "--memory", "8GiB", *NO_WAIT)
    assert done.returncode == 75
    assert "card 0 has 0 of 8192 MiB free" in done.stderr


@pytest.mark.parametrize(
    "options", [("--compute", "30%"), ("--limits", "elasticgpu.io/gpu-core=20")]
)
def test_a_card_that_they_fill_is_not_handed_out_for_its_time_alone(
    site: Site, strangers: foreign_programs.Strangers, options: tuple[str, str]
) -> None:
    """Without memory nothing runs there, even if nobody set any aside."""
    strangers.using(CARD_MIB - CONTEXT_MIB, card=0)
    site.holding(*options, "--name", "elsewhere")
    assert [tenant["index"] for tenant in site.view()["tenants"]] == [1]
    done = site.partage("run", *options, "--card", "0", *NO_WAIT)
    assert done.returncode == 75
    assert "card 0 has no memory free" in done.stderr


def test_an_exclusive_card_is_one_without_them(
    site: Site, strangers: foreign_programs.Strangers
) -> None:
    """However little they have of it."""
    strangers.using(1, card=0)
    site.holding("--exclusive", "--name", "alone")
    assert [tenant["index"] for tenant in site.view()["tenants"]] == [1]
    done = site.partage("run", "--exclusive", *NO_WAIT)
    assert done.returncode == 75
    assert "card 0 is in use, card 1 is taken whole" in done.stderr


def test_they_are_not_taken_for_a_reason_to_give_up(
    site: Site, strangers: foreign_programs.Strangers
) -> None:
    """What fits on the empty card waits for them; it is not refused for ever."""
    strangers.using(6000)
    command = ("run", "--card", "0", "--memory", "16GiB")
    assert site.partage(*command, *NO_WAIT).returncode == 75


def test_who_waits_starts_when_they_end(site: Site, strangers: foreign_programs.Strangers) -> None:
    """Nobody rings: they have no lease; the first of the queue looks by itself."""
    stranger = strangers.using(8000)
    waiter = site.run("--card", "0", "--memory", "10GiB", "--name", "w", command=["echo", "ran"])
    sites.eventually(lambda: site.queued() == ["w"])
    assert waiter.poll() is None
    stranger.kill()
    out, _ = waiter.communicate(timeout=sites.PATIENCE_S)
    assert out == "ran\n"


def test_what_they_took_after_the_grant_is_shown_as_missing(
    site: Site, strangers: foreign_programs.Strangers
) -> None:
    """A card that was granted and then filled by others has less than nothing free."""
    site.holding("--card", "0", "--memory", "12GiB")
    strangers.using(6 * 1024 - CONTEXT_MIB)
    assert site.view()["cards"][0]["free_mib"] == -2 * 1024


def test_own_processes_are_never_foreign(site: Site, tmp_path: pathlib.Path) -> None:
    """Neither the program nor its children, nor theirs, nor one that has left them all."""
    hold = _shell("hold", "100")
    children = shlex.quote(f"{hold} & {hold} & wait")
    script = f"{_shell('daemon', '100', f'{tmp_path}/daemon')}; sh -c {children} & {hold}"
    program = site.run("--memory", "2GiB", command=["sh", "-c", script], start_new_session=True)
    try:
        _await_processes(site, 4)
        assert site.view()["foreign"] == []
        assert site.view()["cards"][0]["foreign_mib"] == 0
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((tmp_path / "daemon").read_text()), signal.SIGKILL)


def _shell(*words: str) -> str:
    """A program that uses its card, as a shell reads it."""
    return shlex.join([sys.executable, str(sites.PROGRAM), *words])


def _await_processes(site: Site, count: int) -> None:
    def as_many() -> bool:
        tenants = site.view()["tenants"]
        return bool(tenants) and len(tenants[0]["processes"]) == count

    sites.eventually(as_many)


def test_own_children_are_ours_without_a_fence(site: Site, tmp_path: pathlib.Path) -> None:
    """By descent alone, where no fence knows them."""
    site.environment |= installations.without_library(tmp_path)
    children = shlex.quote(f"{_shell('hold', '100')}; true")
    command = ["sh", "-c", f"sh -c {children}; true"]
    share = ("--memory", "2GiB", "--fence", "advisory")
    program = site.run(*share, command=command, start_new_session=True)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "holds 100 MiB, 0\n"
        view = site.view()
        assert view["cards"][0]["used_mib"] == 100 + CONTEXT_MIB
        assert view["foreign"] == []
    finally:
        os.killpg(program.pid, signal.SIGKILL)


def test_who_has_ended_since_the_driver_was_asked_is_not_foreign(site: Site) -> None:
    """A process that the driver still knew may be gone, or a zombie, when the ledger is read."""
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        seen = _seen(machine.Present("GPU-0", stranger.pid, 5 * MIB))
        assert [f.pid for f in machine.understood(seen, (), site.state()).foreign] == [stranger.pid]
        stranger.kill()
        sites.eventually(lambda: (facts := processes.stat(stranger.pid)) and facts.ended)
        assert machine.understood(seen, (), site.state()).foreign == ()
    finally:
        stranger.kill()
        stranger.wait()
    assert machine.understood(seen, (), site.state()).foreign == ()


def test_where_the_driver_does_not_tell_they_have_what_nobody_else_has(site: Site) -> None:
    """All that is used of the card, less what our own programs use."""
    ours = site.holding("--memory", "1GiB")
    living = (_moved(site, "GPU-0"),)
    present = (
        machine.Present("GPU-0", os.getpid(), None),
        machine.Present("GPU-0", ours.pid, 300 * MIB),
    )
    this_machine = machine.understood(_seen(*present), living, site.state())
    assert [process.pid for process in this_machine.foreign] == [os.getpid()]
    assert this_machine.node.cards[0].foreign_memory_mib == 700


def _moved(site: Site, uuid: str) -> entries.Entry:
    """The one program of a site, as if its share were of this card."""
    with site.book() as book:
        (entry,) = book.all()
    assert entry.container is not None
    card = entry.container.shares[0].uuid.encode()
    said = msgspec.json.encode(entry).replace(card, uuid.encode())
    return msgspec.json.decode(said, type=entries.Entry)


def _seen(*present: machine.Present) -> machine.Seen:
    """A card of a GiB, with 1000 MiB in use."""
    device = nvml.Device(index=0, uuid="GPU-0", memory_mib=1024, used_mib=1000, model="Some GPU")
    return machine.Seen((device,), present, "615.71")
