"""``partage resize``: a share changed under a running program, or refused and nothing changed."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import threading
from typing import Any

import msgspec
import pytest

from partage.core import errors
from partage.fence.store import roots, tenants
from partage.local.run import resizing
from partage.local.state import entries, leases
from tests.local import installations, sites
from tests.local.sites import Site

CARD_MIB, CONTEXT_MIB = 16 * 1024, 256
FIRST = ("--card", "0")


class Program:
    """A CUDA program with a share of the first card, that does what it is told."""

    def __init__(self, site: Site, *options: object, name: str = "train") -> None:
        command = [sys.executable, str(sites.PROGRAM), "step"]
        self.process = site.run(
            *options, *FIRST, "--name", name, command=command, stdin=subprocess.PIPE
        )
        assert self.answer("total").isdecimal()

    def answer(self, line: str) -> str:
        """Its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")


def _share(site: Site, name: str = "train") -> dict[str, Any]:
    """What the view says of a program."""
    (tenant,) = [row for row in site.view()["tenants"] if row["name"] == name]
    return {
        field: tenant[field]
        for field in ("memory_mib", "compute_percent", "ceiling_percent", "mode")
    }


def _state(site: Site, name: str) -> tuple[object, ...]:
    """All that is written of a program: its row, its lease, its fence."""
    with site.book() as book:
        row = next(entry for entry in book.all() if entry.name == name)
    lease_file = leases.find(site.folder / "leases", row.token)
    assert lease_file is not None
    fence = tenants.read(roots.find(site.folder / "fence"), row.tenant)
    return row, lease_file.entry, fence


def test_a_larger_share_is_seen_by_the_running_program(site: Site) -> None:
    """What was out of memory before is not afterwards, in the same process."""
    program = Program(site, "--memory", "2GiB")
    assert program.answer("try 3000") == "error 2"
    done = site.partage("resize", "train", "--memory", "6GiB")
    assert (done.returncode, done.stdout) == (0, "train: card 0: 2048 MiB -> 6144 MiB\n")
    assert program.answer("total") == "6144"
    assert program.answer("try 3000") == "got it"
    assert _share(site)["memory_mib"] == 6144
    assert site.view()["cards"][0]["free_mib"] == CARD_MIB - 6144


def test_a_smaller_share_is_seen_by_the_running_program(site: Site) -> None:
    """The memory it has stays its own, and the next allocation meets the new share."""
    program = Program(site, "--memory", "6GiB")
    assert program.answer("try 1000") == "got it"
    assert site.partage("resize", "train", "--memory", "2GiB").returncode == 0
    assert program.answer("total") == "2048"
    assert program.answer("try 1000") == "error 2"
    assert program.answer(f"try {2048 - CONTEXT_MIB - 1000}") == "got it"
    assert site.view()["cards"][0]["free_mib"] == CARD_MIB - 2048


def test_memory_in_percent_is_of_the_card(site: Site) -> None:
    """As with ``partage run``."""
    program = Program(site, "--memory", "2GiB")
    assert site.partage("resize", "train", "--memory", "25%").returncode == 0
    assert program.answer("total") == str(CARD_MIB // 4)


def test_compute_changes_and_the_rest_stays(site: Site) -> None:
    """With a ceiling it is a guarantee, without one it is exact; memory is as it was."""
    Program(site, "--memory", "2GiB", "--compute", "20")
    assert _share(site)["mode"] == "fixed"
    done = site.partage("resize", "train", "--compute", "30%:80%")
    assert done.stdout == "train: card 0: 2048 MiB, 20% -> 2048 MiB, 30%-80%\n"
    burst = {"memory_mib": 2048, "compute_percent": 30, "ceiling_percent": 80, "mode": "burst"}
    assert _share(site) == burst
    assert site.partage("resize", "train", "--compute", "50").returncode == 0
    share = _share(site)
    assert (share["compute_percent"], share["mode"]) == (50, "fixed")
    assert site.view()["cards"][0]["granted_percent"] == 50


def test_a_share_without_a_memory_limit_has_all_of_it(site: Site) -> None:
    """Nothing said is no limit, and not nothing."""
    site.holding("--compute", "20%", *FIRST, "--name", "train")
    done = site.partage("resize", "train", "--compute", "30%")
    assert done.stdout == "train: card 0: all memory, 20% -> all memory, 30%\n"
    done = site.partage("resize", "train", "--memory", "2GiB")
    assert done.stdout == "train: card 0: all memory, 30% -> 2048 MiB, 30%\n"


def test_time_changes_on_a_card_without_free_memory(site: Site) -> None:
    """Who asked for no memory is there already, and needs none for another share of the time."""
    site.holding("--compute", "30%", *FIRST, "--name", "train")
    site.holding("--memory", "16GiB", *FIRST, "--name", "other")
    assert site.partage("resize", "train", "--compute", "40%").returncode == 0
    assert _share(site)["compute_percent"] == 40
    done = site.partage("resize", "train", "--memory", "1GiB")
    assert "card 0 has 0 of 1024 MiB free" in done.stderr


def test_all_its_cards_change(site: Site) -> None:
    """A share of two cards is changed on both, and both are told."""
    site.holding("--cards", "2", "--memory", "2GiB", "--name", "train")
    done = site.partage("resize", "train", "--memory", "3GiB")
    lines = sorted(done.stdout.splitlines())
    assert lines == [f"train: card {i}: 2048 MiB -> 3072 MiB" for i in (0, 1)]
    assert [card["granted_mib"] for card in site.view()["cards"]] == [3072, 3072]


def test_what_has_no_room_is_refused(site: Site) -> None:
    """Exit code 75, since it may work later; what is short is said, and nothing has changed."""
    Program(site, "--memory", "6GiB")
    site.holding("--memory", "8GiB", *FIRST, "--name", "neighbour")
    before = _state(site, "train")
    done = site.partage("resize", "train", "--memory", "9GiB")
    assert done.returncode == 75
    assert "train cannot have that: card 0 has 8192 of 9216 MiB free" in done.stderr
    assert _state(site, "train") == before
    assert site.partage("resize", "train", "--memory", "8GiB").returncode == 0


def test_the_other_cards_do_not_help(site: Site) -> None:
    """A program stays where it is, however empty the machine is."""
    site.holding("--memory", "6GiB", *FIRST, "--name", "train")
    assert site.partage("resize", "train", "--memory", "17GiB").returncode == 2  # never
    site.holding("--memory", "10GiB", *FIRST, "--name", "neighbour")
    assert site.partage("resize", "train", "--memory", "7GiB").returncode == 75


def test_below_what_is_in_use_is_refused(site: Site) -> None:
    """It says how much that is; at that amount it works."""
    program = Program(site, "--memory", "6GiB")
    assert program.answer("try 3000") == "got it"
    before = _state(site, "train")
    done = site.partage("resize", "train", "--memory", "3GiB")
    assert done.returncode == 2
    assert f"{3000 + CONTEXT_MIB} MiB of card 0 are in use" in done.stderr
    assert _state(site, "train") == before
    assert program.answer("total") == "6144", "the fence is where it was"
    done = site.partage("resize", "train", "--memory", f"{3000 + CONTEXT_MIB}MiB")
    assert done.returncode == 0, done.stderr


def test_memory_where_there_was_no_limit_is_not_below_what_is_used(site: Site) -> None:
    """Who asked for compute alone has memory without limit; a limit is a smaller share."""
    program = Program(site, "--compute", "20")
    assert program.answer("try 3000") == "got it"
    done = site.partage("resize", "train", "--memory", "1GiB")
    assert done.returncode == 2
    assert f"{3000 + CONTEXT_MIB} MiB of card 0 are in use" in done.stderr
    assert program.answer("total") == str(CARD_MIB)
    assert site.partage("resize", "train", "--memory", "4GiB").returncode == 0
    assert program.answer("total") == "4096"


def test_what_cannot_be_resized_is_said(site: Site) -> None:
    """A name that is not there, or has no share that could change; or amounts that are none."""
    site.holding("--exclusive", "--card", "1", "--name", "alone")
    site.holding("--memory", "2GiB", *FIRST, "--name", "train")
    site.run("--exclusive", "--name", "late", command=["true"], stderr=subprocess.DEVNULL)
    sites.eventually(lambda: site.queued() == ["late"])
    for arguments, text in (
        (["nobody", "--memory", "1GiB"], "no program is named nobody; these run: alone, train"),
        (["", "--memory", "1GiB"], "no program is named ''; these run: alone, train"),
        (["alone", "--memory", "1GiB"], "alone has its cards for itself"),
        (["late", "--memory", "1GiB"], "late waits in the queue"),
        (["train"], "nothing to change; add --memory or --compute"),
        (["train", "--memory", "4"], "--memory: 4 has no unit; write 4GiB or 4MiB"),
        (["train", "--memory", "0GiB"], "--memory: '0GiB' is not an amount of memory"),
        (["train", "--memory", "+1GiB"], "'+1GiB' has a sign; write the total that it is to have"),
        (["train", "--compute", "+10%"], "'+10%' has a sign; write the total that it is to have"),
        (["train", "--compute", "200"], "--compute: '200' is not a valid share"),
        (["train", "--compute", "50:30"], "--compute: '50:30' is not a valid share"),
    ):
        done = site.partage("resize", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert text in done.stderr
    assert _share(site)["memory_mib"] == 2048


def test_somebody_elses_is_not_changed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its user and root may."""
    theirs = msgspec.structs.replace(_running(site), uid=4242)
    monkeypatch.setattr(os, "geteuid", lambda: 4243)
    with pytest.raises(
        errors.InputError, match="train belongs to 4242; only its user, or root, may"
    ):
        resizing._resizable((theirs,), "train")
    for user in (0, 4242):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert resizing._resizable((theirs,), "train")[0] == theirs


def test_who_is_just_being_started_is_left_alone(site: Site) -> None:
    """Its own process writes its lease and its fence, and would undo what others write."""
    with pytest.raises(errors.LedgerError, match="is still starting; try again"):
        resizing._resizable((_starting(_running(site)),), "train")


def _running(site: Site) -> entries.Entry:
    """A program that runs, as its lease says."""
    site.holding("--memory", "2GiB", "--name", "train")
    (token,) = leases.tokens(site.folder / "leases")
    lease_file = leases.find(site.folder / "leases", token)
    assert lease_file is not None
    assert lease_file.entry is not None
    return lease_file.entry


def _starting(entry: entries.Entry) -> entries.Entry:
    """The same before its fence was put up."""
    assert entry.grant is not None
    assert entry.container is not None
    container = msgspec.structs.replace(entry.container, fence="")
    grant = msgspec.structs.replace(entry.grant, containers=(container,))
    return msgspec.structs.replace(entry, grant=grant)


def test_a_smaller_share_lets_the_next_start(site: Site) -> None:
    """Who waits hears it."""
    Program(site, "--memory", "12GiB")
    waiter = site.run("--memory", "8GiB", *FIRST, "--name", "late", command=["echo", "ran"])
    sites.eventually(lambda: site.queued() == ["late"])
    assert site.partage("resize", "train", "--memory", "8GiB").returncode == 0
    assert waiter.communicate(timeout=sites.PATIENCE_S)[0] == "ran\n"


def test_without_a_fence_it_warns(site: Site, tmp_path: pathlib.Path) -> None:
    """The ledger has the new share, and nothing holds the program to it."""
    site.environment |= installations.without_library(tmp_path)
    site.holding("--memory", "2GiB", "--fence", "advisory", "--name", "train")
    done = site.partage("resize", "train", "--memory", "3GiB")
    assert done.returncode == 0
    assert "warning: nothing keeps train to its share: its fence is advisory" in done.stderr
    assert _share(site)["memory_mib"] == 3072


def test_without_a_fence_the_driver_says_what_is_in_use(site: Site, tmp_path: pathlib.Path) -> None:
    """Nobody else counts it, and a share is not lowered below it either."""
    site.environment |= installations.without_library(tmp_path)
    program = Program(site, "--memory", "6GiB", "--fence", "advisory")
    assert program.answer("try 3000") == "got it"
    done = site.partage("resize", "train", "--memory", "3GiB")
    assert done.returncode == 2
    assert f"{3000 + CONTEXT_MIB} MiB of card 0 are in use" in done.stderr
    assert _share(site)["memory_mib"] == 6144
    assert site.partage("resize", "train", "--memory", "4GiB").returncode == 0


def test_it_is_told_as_json(site: Site) -> None:
    """The share before and after, and whether a fence holds it."""
    site.holding("--memory", "2GiB", *FIRST, "--name", "train")
    done = site.partage("resize", "train", "--memory", "3GiB", "--compute", "30", "-o", "json")
    resized = json.loads(done.stdout)
    assert (resized["apiVersion"], resized["kind"]) == ("output.partage.dev/v1", "Resize")
    assert resized["name"] == "train"
    assert resized["held"] is True
    shares = [resized[when]["shares"][0] for when in ("before", "after")]
    assert [(s["index"], s["memory_mib"]) for s in shares] == [(0, 2048), (0, 3072)]
    assert [s.get("compute_percent", 0) for s in shares] == [0, 30]


@pytest.mark.parametrize("memory", ["1GiB", "6GiB"])
def test_a_full_disk_changes_nothing(site: Site, memory: str) -> None:
    """The ledger cannot be written: row, lease and fence are as before, smaller or larger."""
    program = Program(site, "--memory", "2GiB")
    site.partage("resize", "train", "--compute", "10")  # its row is as its lease from here on
    before = _state(site, "train")
    with site.book():  # who keeps it open keeps its log, which would be made anew
        limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", str(sites.PARTAGE)]
        done = subprocess.run(
            [*limited, "resize", "train", "--memory", memory],
            env=site.environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "the ledger" in done.stderr
    assert "Traceback" not in done.stderr
    assert _state(site, "train") == before
    assert program.answer("total") == "2048"
    assert site.partage("resize", "train", "--memory", memory).returncode == 0


def test_two_who_resize_at_once_never_give_too_much(site: Site) -> None:
    """Of two that each fit alone, one gets it."""
    for name in ("a", "b"):
        site.holding("--memory", "4GiB", *FIRST, "--name", name)
    codes: list[int] = []

    def grow(name: str) -> None:
        codes.append(site.partage("resize", name, "--memory", "9GiB").returncode)

    threads = [threading.Thread(target=grow, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [0, 75]
    assert site.view()["cards"][0]["granted_mib"] == 13 * 1024
