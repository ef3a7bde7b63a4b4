"""Seats: two tenants of a card never have the same one, and none goes to waste."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from partage.core import errors
from partage.fence.store import layout, roots, seats, shared_files, tenants
from tests.fence import small_limits


class Seats(RuleBasedStateMachine):
    """Tenants come and go on three cards, in any order."""

    present = Bundle("present")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = roots.prepare(pathlib.Path(self.folder.name) / "root")
        self.made = 0

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.folder.cleanup()

    @rule(target=present, cards=st.lists(st.integers(1, 3), min_size=1, max_size=3, unique=True))
    def create(self, cards: list[int]) -> str:
        """The seat is the lowest that nobody on the card has."""
        taken = self.seats()
        self.made += 1
        tenant = tenants.create(self.root, f"t{self.made}", small_limits.share(*cards))
        for card, seat in zip(cards, tenant.seats, strict=True):
            others = taken.get(small_limits.uuid(card), [])
            assert seat == min(set(range(len(others) + 1)) - set(others))
        return tenant.name

    @rule(name=consumes(present))
    def remove(self, name: str) -> None:
        """Its seats are free again."""
        tenants.remove(self.root, name)

    def seats(self) -> dict[str, list[int]]:
        """Who sits where, by card."""
        seats_by_card: dict[str, list[int]] = {}
        for name in tenants.names(self.root):
            tenant = tenants.read(self.root, name)
            for card, seat in zip(tenant.limits.cards, tenant.seats, strict=True):
                seats_by_card.setdefault(card.uuid, []).append(seat)
        return seats_by_card

    @invariant()
    def no_seat_is_shared(self) -> None:
        """On no card, at no time."""
        for taken in self.seats().values():
            assert len(set(taken)) == len(taken)


TestSeats = Seats.TestCase
TestSeats.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


def test_processes_that_race_get_different_seats(root: roots.Root) -> None:
    """Four of them, ten tenants each, all on one card."""
    script = """
import pathlib, sys
from partage.fence.store import roots, tenants
from tests.fence import small_limits
root = roots.prepare(pathlib.Path(sys.argv[1]))
for number in range(10):
    tenants.create(root, f"{sys.argv[2]}-{number}", small_limits.share(1))
"""
    line = [sys.executable, "-c", script, str(root.path)]
    folder = pathlib.Path(__file__).parents[2]
    makers = [subprocess.Popen([*line, f"m{i}"], cwd=folder) for i in range(4)]
    assert [maker.wait(timeout=60) for maker in makers] == [0] * 4

    seats = [tenants.read(root, name).seats[0] for name in tenants.names(root)]
    assert sorted(seats) == list(range(40))


def test_roots_that_are_made_at_once_are_one(tmp_path: pathlib.Path) -> None:
    """Whoever comes first: nobody's tenants are lost."""
    script = """
import pathlib, sys
from partage.fence.store import roots, tenants
from tests.fence import small_limits
root = roots.prepare(pathlib.Path(sys.argv[1]))
tenants.create(root, sys.argv[2], small_limits.share(1))
"""
    folder = pathlib.Path(__file__).parents[2]
    for turn in range(3):
        path = str(tmp_path / f"root-{turn}")
        line = [sys.executable, "-c", script, path]
        makers = [subprocess.Popen([*line, f"m{i}"], cwd=folder) for i in range(4)]
        assert [maker.wait(timeout=60) for maker in makers] == [0] * 4
        assert len(tenants.names(roots.find(pathlib.Path(path)))) == 4


def test_a_seat_is_clean_when_somebody_gets_it(root: roots.Root) -> None:
    """Whatever the last one left there; the seats beside it are not touched."""
    for name in ("before", "beside"):
        tenants.create(root, name, small_limits.share(1))
    ours, beside = (seats.path(root, small_limits.uuid(1), number) for number in (0, 1))
    for seat in (ours, beside):
        with seat.open("r+b") as file:
            os.pwrite(file.fileno(), b"\xff" * 8, layout.Seat.launches.offset)
    tenants.remove(root, "before", force=True)
    assert not ours.exists()

    tenants.create(root, "after", small_limits.share(1))

    assert shared_files.read(ours, layout.Seat).launches == 0
    assert shared_files.read(beside, layout.Seat).launches == 2**64 - 1


def test_a_card_whose_seats_are_all_taken_is_told(root: roots.Root) -> None:
    """As many tenants as there are seats, and no more."""
    uuid = small_limits.uuid(1)
    root.scratch.mkdir()

    taken = range(layout.SEATS - 1)
    assert seats.take(root, uuid, taken, uid=-1, gid=-1) == layout.SEATS - 1
    with pytest.raises(errors.FenceError, match=f"{uuid} has 256 tenants"):
        seats.take(root, uuid, range(layout.SEATS), uid=-1, gid=-1)


def test_an_unreadable_neighbour_keeps_its_seat(root: roots.Root) -> None:
    """Which one it has is not known: on that card only numbers without a file are given."""
    folder = tenants.create(root, "odd", small_limits.share(1)).folder
    os.truncate(folder / "limits", 20)

    assert tenants.create(root, "new", small_limits.share(2, 1)).seats == (0, 1)
    assert tenants.create(root, "newer", small_limits.share(1)).seats == (2,)
