"""Simulated cards live in a file: where it cannot be made or written, that is what is told."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests import disks
from tests.local import sites

COMMANDS = (["ps"], ["run", "--memory", "1GiB", "--", "echo", "ran"], ["fit", "--memory", "1GiB"])


@pytest.fixture
def small(tmp_path: pathlib.Path) -> Iterator[sites.Site]:
    """A machine with its ledger and its cards on a small disk."""
    with disks.small(tmp_path / "disk") as disk:
        site = sites.Site(disk)
        site.state()
        yield site
        site.end()


def test_a_full_disk_has_no_room_for_the_cards(small: sites.Site) -> None:
    """Nobody dies of a signal; the file is named, and nothing of it is left."""
    filler = small.folder.parent / "filler"
    disks.fill(filler)

    for command in COMMANDS:
        done = small.partage(*command)
        assert (done.stdout, done.returncode) == ("", 1), done.stderr
        last = done.stderr.splitlines()[-1]
        assert f"{small.folder}/machine: No space left on device; make room" in last
        assert "--simulate" not in done.stderr
    assert not list(small.folder.glob("machine*"))
    filler.unlink()
    assert small.partage("run", "--memory", "1GiB", "--", "echo", "ran").stdout == "ran\n"


def test_cards_that_are_there_can_be_looked_at_on_a_full_disk(small: sites.Site) -> None:
    """What they are kept in was given its room when they were made."""
    assert small.partage("ps").returncode == 0
    disks.fill(small.folder.parent / "filler")

    assert [card["memory_mib"] for card in small.view()["cards"]] == [16384, 16384]
    doctor = small.partage("doctor")
    assert "simulated" in doctor.stdout
    assert doctor.returncode == 1  # of the disk


def test_a_read_only_disk_is_told_with_the_file_of_the_cards(small: sites.Site) -> None:
    """Whether it is there or not; simulated cards are not advised to one who has them."""
    for make in (False, True):
        if make:
            assert small.partage("ps").returncode == 0
        with disks.read_only(small.folder):
            for command in COMMANDS:
                done = small.partage(*command)
                assert (done.stdout, done.returncode) == ("", 1)
                last = done.stderr.splitlines()[-1]
                assert f"{small.folder}/machine: Read-only file system; mount it" in last
                assert "PARTAGE_STATE" in last
                assert "--simulate" not in done.stderr


def test_the_doctor_names_the_file_of_the_cards(small: sites.Site) -> None:
    """In the line of the driver, with what to do."""
    with disks.read_only(small.folder):
        done = small.partage("doctor", "-o", "json")

    assert done.returncode == 1
    assert f"{small.folder}/machine: Read-only file system" in done.stdout
    assert "--simulate" not in done.stdout


def test_a_file_that_a_user_named_is_told_as_theirs(tmp_path: pathlib.Path) -> None:
    """Another folder for the ledger would not help."""
    site = sites.Site(tmp_path, state="/proc/machine")
    done = site.partage("ps")

    assert done.returncode == 1
    assert "SIMCUDA_STATE" in done.stderr.splitlines()[-1]
