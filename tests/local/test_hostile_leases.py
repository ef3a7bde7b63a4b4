"""Leases that somebody made to do harm: nobody else is stopped, and no table breaks."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from partage.fence.store import locks, roots, tenants
from tests.local import foreign_programs, sites

TOKENS = ("00000000deadbeef", "11111111deadbeef")
TOKEN = TOKENS[0]

Spoil = Callable[[dict[str, Any]], object]


def _share(entry: dict[str, Any]) -> dict[str, Any]:
    share: dict[str, Any] = entry["grant"]["containers"][0]["shares"][0]
    return share


SPOILT: dict[str, Spoil] = {
    "process id": lambda entry: entry.update(pid=1 << 40),
    "negative process id": lambda entry: entry.update(pid=-1),
    "start": lambda entry: entry.update(started_ticks=1 << 70),
    "time": lambda entry: entry.update(asked_at=1e308, granted_at=-1e308),
    "no share": lambda entry: entry["grant"]["containers"][0].update(shares=[]),
    "memory": lambda entry: _share(entry).update(memory_mib=1 << 32),
    "negative memory": lambda entry: _share(entry).update(memory_mib=-(1 << 20)),
    "card": lambda entry: _share(entry).update(uuid="\x1b]0;x\x07\x1b[2J"),
    "index": lambda entry: _share(entry).update(index=10**40),
    "many cards": lambda entry: entry["demand"]["containers"][0]["demand"].update(cards=10**9),
    "name": lambda entry: entry.update(name="../\x1b[2J"),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_lease_that_makes_no_sense_stops_nobody(site: sites.Site, spoil: Spoil) -> None:
    """Whatever a lease says, locked or not, others run and look, while somebody waits."""
    site.holding("--memory", "4GiB", "--card", 0, "--name", "honest")
    folder = site.state().leases
    (honest,) = folder.iterdir()
    for token in TOKENS:
        entry = json.loads(honest.read_text())
        entry |= {"token": token, "name": f"evil-{token}"}
        entry["grant"]["pod"] |= {"uid": token, "name": f"evil-{token}"}
        spoil(entry)
        (folder / token).write_text(json.dumps(entry))
    with (folder / TOKENS[0]).open("r+") as locked:
        assert locks.take(locked.fileno(), 0)
        site.run("--exclusive", "--card", 0, "--name", "waits", command=["true"])
        sites.eventually(lambda: "waits" in site.queued())

        _all_is_well(site)


def test_a_lease_that_is_nested_without_end_stops_nobody(site: sites.Site) -> None:
    """A hundred thousand brackets are no entry."""
    (site.state().leases / TOKEN).write_text('{"x":' + "[" * 100_000)

    _all_is_well(site)


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        os.mkdir,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 1 << 40),
    ],
    ids=["pipe", "folder", "link", "endless"],
)
def test_what_is_no_file_of_ours_is_no_lease(
    site: sites.Site, make: Callable[[pathlib.Path], object]
) -> None:
    """Nobody waits for a pipe's other end, or reads a terabyte."""
    make(site.state().leases / TOKEN)

    _all_is_well(site)


def test_a_fence_that_somebody_damaged_stops_nobody(site: sites.Site) -> None:
    """Its seat at the card is not known any more, and nobody else gets it."""
    site.holding("--memory", "1GiB", "--card", 0, "--name", "evil")
    root = roots.find(site.state().fence)
    (evil,) = tenants.names(root)
    sitting = tenants.read(root, evil).seats
    os.truncate(root.tenants / evil / "limits", 10)
    site.holding("--memory", "1GiB", "--card", 0, "--name", "honest")

    (honest,) = set(tenants.names(root)) - {evil}
    assert tenants.read(root, honest).seats != sitting


def test_a_process_id_that_came_again_is_a_stranger(site: sites.Site) -> None:
    """With the id of a program, but another start, it is foreign, and what it uses counts."""
    site.holding("--memory", "4GiB", "--card", 0, "--name", "honest")
    (lease,) = site.state().leases.iterdir()
    with foreign_programs.Strangers(site).using(2048) as stranger:
        entry = json.loads(lease.read_text())
        lease.write_text(json.dumps(entry | {"pid": stranger.pid}))
        try:
            assert [row["pid"] for row in site.view()["foreign"]] == [stranger.pid]
        finally:
            stranger.kill()


def _all_is_well(site: sites.Site) -> None:
    """Everything that everybody uses works."""
    for command in (("ps", "-o", "wide"), ("ps", "-o", "json")):
        done = site.partage(*command)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
    ran = site.partage("run", "--memory", "1GiB", "--card", 1, "--", "echo", "runs")
    assert (ran.returncode, ran.stdout) == (0, "runs\n"), ran.stderr
    examined = site.partage("doctor")
    assert "bug in Partage" not in examined.stdout
    assert not examined.stderr
