"""Programs that no fence holds: what they use above their share is given to nobody else."""

from __future__ import annotations

import sys

import pytest

from tests import simulated_machines
from tests.local import sites

LEAVING = (  # as sudo does; of the loader's variables, the simulated driver needs one
    *("env", "-u", "LD_PRELOAD", "-u", "PARTAGE_LIMITS"),
    f"LD_LIBRARY_PATH={simulated_machines.LIBRARIES}",
)


@pytest.mark.parametrize(
    ("share", "leaving"),
    [(("--memory", "1GiB"), LEAVING), (("--compute", "30%"), ())],
    ids=["left its fence", "has no share of memory"],
)
def test_what_is_used_above_a_share_is_not_given_away(
    site: sites.Site, share: tuple[str, ...], leaving: tuple[str, ...]
) -> None:
    """A card with 12000 MiB in use has no room for 14 GiB, whoever uses them."""
    command = [*leaving, sys.executable, str(sites.PROGRAM), "hold", "12000"]
    program = site.run(*share, "--card", 0, command=command)
    assert program.stdout is not None
    assert program.stdout.readline().startswith("holds")

    refused = site.partage("run", "--no-wait", "--memory", "14GiB", "--card", 0, "--", "true")
    assert refused.returncode == 75
    assert (
        site.partage("run", "--no-wait", "--memory", "2GiB", "--card", 0, "--", "true").returncode
        == 0
    )


def test_what_is_used_within_a_share_is_counted_once(site: sites.Site) -> None:
    """Two halves of a card are a card, however much of it is used."""
    site.using(7000, "--memory", "50%", "--card", 0)

    done = site.partage("run", "--no-wait", "--memory", "50%", "--card", 0, "--", "true")
    assert done.returncode == 0, done.stderr
