"""``kill -9`` at every line of a command: no share is lost, doubled or wider than it is counted."""

from __future__ import annotations

import pathlib
import signal

import pytest

from partage.fence import limits, roots, tenants
from partage.local import leases, sweeping
from tests.local import killing, sites

KILLED = -signal.SIGKILL
MOST_LINES = 2000  # more than any of the commands has
GIB = 1024  # MiB


@pytest.mark.parametrize(
    ("before", "after"),
    [((12 * GIB, 80), (400, 20)), ((4 * GIB, 80), (12 * GIB, 20))],
    ids=["less of both", "more memory, less time"],
)
def test_a_fence_is_never_wider_than_what_is_counted(
    site: sites.Site, before: tuple[int, int], after: tuple[int, int]
) -> None:
    """Wherever a resize is killed, nobody else is promised what the fence does not keep."""
    site.holding(*_asked(before), "--card", 0, "--name", "train")
    with killing.killer(site, "resizing", "leases") as run:
        for line in range(1, MOST_LINES):
            code = run(line, "resize", "train", *_asked(after))
            counted, fenced = _train(site)
            assert fenced[0] <= counted[0], f"killed at line {line}"
            assert fenced[1] <= counted[1], f"killed at line {line}"
            if code != KILLED:
                break
            if (counted, fenced) != (before, before):
                assert run(0, "resize", "train", *_asked(before)) == 0

    assert code == 0
    assert (counted, fenced) == (after, after)


def test_whoever_is_killed_on_his_way_leaves_nothing(site: sites.Site) -> None:
    """Wherever a run is killed, the next one finds those who live, and nothing of him."""
    site.holding("--memory", "2GiB", "--card", 0, "--name", "base")
    place = site.place()
    modules = ("granting", "running", "leases", "sweeping", "fencing", "contexts", "starting")
    with killing.killer(site, *modules) as run:
        for line in range(1, MOST_LINES, 3):
            code = run(line, "run", "--memory", "8GiB", "--", "true")
            with site.book() as book:
                with book.deciding():
                    swept = sweeping.sweep(place, book)
                sweeping.tidy(place, swept.ended)
                assert [each.name for each in book.all()] == ["base"], f"killed at line {line}"
            assert _names(place.leases) == [swept.living[0].token]
            assert _names(place.fence / "tenants") == [swept.living[0].tenant]
            if code != KILLED:
                break

    assert code == 0


def _asked(share: tuple[int, int]) -> tuple[str, ...]:
    return ("--memory", f"{share[0]}MiB", "--compute", f"{share[1]}%")


def _train(site: sites.Site) -> tuple[tuple[int, int], tuple[int, int]]:
    """What whoever decides next counts for the program, and what its fence allows."""
    place = site.place()
    with site.book() as book, book.deciding():
        (entry,) = sweeping.sweep(place, book).living
    found = leases.find(place.leases, entry.token)
    assert found is not None
    assert found.entry is not None  # the ledger may be lost next
    assert entry.container is not None
    (share,) = entry.container.shares
    (fence,) = tenants.read(roots.find(place.fence), entry.tenant).limits.cards
    percent = fence.share_millionths // limits.MILLIONTHS_PER_PERCENT
    return (share.memory_mib, share.compute_percent), (fence.memory_bytes >> 20, percent)


def _names(folder: pathlib.Path) -> list[str]:
    return [path.name for path in folder.iterdir()]
