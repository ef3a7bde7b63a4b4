"""``kill -9`` at every line of a command: no share is lost, doubled or wider than it is counted."""

from __future__ import annotations

import pathlib
import signal

import pytest

from partage.fence.store import limits, roots, tenants
from partage.local.ledger import liveness
from partage.local.queue import decision
from partage.local.run import (
    context_cost_cache,
    launch,
    program_fence,
    program_start,
    resizing,
)
from partage.local.state import leases
from tests.local import line_killer, sites

pytestmark = pytest.mark.slow  # a process is killed at each line of a command
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
    site.holding(*_options(before), "--card", 0, "--name", "train")
    with line_killer.killer(site, resizing, leases) as run:
        for line in range(1, MOST_LINES):
            code = run(line, "resize", "train", *_options(after))
            counted, fenced = _train(site)
            assert fenced[0] <= counted[0], f"killed at line {line}"
            assert fenced[1] <= counted[1], f"killed at line {line}"
            if code != KILLED:
                break
            if (counted, fenced) != (before, before):
                assert run(0, "resize", "train", *_options(before)) == 0

    assert code == 0
    assert (counted, fenced) == (after, after)


def test_a_run_that_is_killed_on_its_way_leaves_nothing(site: sites.Site) -> None:
    """Wherever a run is killed, the next one finds the living programs, and nothing of that run."""
    site.holding("--memory", "2GiB", "--card", 0, "--name", "base")
    state = site.state()
    programs = (launch, program_fence, context_cost_cache, program_start)
    with line_killer.killer(site, decision, leases, liveness, *programs) as run:
        for line in range(1, MOST_LINES, 3):
            code = run(line, "run", "--memory", "8GiB", "--", "true")
            with site.book() as book:
                with book.deciding():
                    swept = liveness.sweep(state, book)
                liveness.tidy(state, swept.ended)
                assert [entry.name for entry in book.all()] == ["base"], f"killed at line {line}"
            assert _names(state.leases) == [swept.living[0].token]
            assert _names(state.fence / "tenants") == [swept.living[0].tenant]
            if code != KILLED:
                break

    assert code == 0
    assert line > 100, "it was killed at no line"


def _options(share: tuple[int, int]) -> tuple[str, ...]:
    return ("--memory", f"{share[0]}MiB", "--compute", f"{share[1]}%")


def _train(site: sites.Site) -> tuple[tuple[int, int], tuple[int, int]]:
    """What the next decision counts for the program, and what its fence allows."""
    state = site.state()
    with site.book() as book, book.deciding():
        (entry,) = liveness.sweep(state, book).living
    lease_file = leases.find(state.leases, entry.token)
    assert lease_file is not None
    assert lease_file.entry is not None  # the ledger may be lost next
    assert entry.container is not None
    (share,) = entry.container.shares
    (fence,) = tenants.read(roots.find(state.fence), entry.tenant).limits.cards
    percent = fence.share_millionths // limits.MILLIONTHS_PER_PERCENT
    return (share.memory_mib, share.compute_percent), (fence.memory_bytes >> 20, percent)


def _names(folder: pathlib.Path) -> list[str]:
    return [path.name for path in folder.iterdir()]
