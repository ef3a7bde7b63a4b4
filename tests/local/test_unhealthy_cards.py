"""A card that is not well is not given to anybody, and comes back when it is healthy again."""

from __future__ import annotations

import subprocess

from tests import simulated_machines
from tests.local import sites


def _simsmi(site: sites.Site, *arguments: str) -> None:
    cards = {
        "SIMCUDA_CARDS": site.environment["PARTAGE_SIMULATE"],
        "SIMCUDA_STATE": str(site.folder / "machine"),
    }
    command = [str(simulated_machines.LIBRARIES / "simsmi"), *arguments]
    subprocess.run(command, env=site.environment | cards, check=True)


def test_a_card_that_needs_a_reset_is_not_granted(site: sites.Site) -> None:
    """Requests go to the other card; one for both waits, with the reason, until it is healthy."""
    site.holding("--memory", "1GiB", "--card", 1)
    _simsmi(site, "xid", "0", "79")

    elsewhere = site.partage("run", "--memory", "1GiB", "--no-wait", "--", "printenv", "PATH")
    both = site.partage("run", "--memory", "1GiB", "--cards", "2", "--no-wait", "--", "true")
    named = site.partage("run", "--memory", "1GiB", "--card", 0, "--no-wait", "--", "true")

    assert elsewhere.returncode == 0, elsewhere.stderr
    assert both.returncode == named.returncode == 75
    assert "card 0 is not healthy" in named.stderr
    assert [card["healthy"] for card in site.view()["cards"]] == [False, True]
    _simsmi(site, "heal", "0")
    assert site.partage("run", "--memory", "1GiB", "--card", 0, "--", "true").returncode == 0


def test_one_who_waits_for_an_unhealthy_card_starts_when_it_is_well(site: sites.Site) -> None:
    """Nothing rings when a card recovers; the first in the queue looks from time to time."""
    site.holding("--memory", "1GiB", "--card", 1)
    _simsmi(site, "xid", "0", "79")
    waiting = site.run("--memory", "1GiB", "--card", 0, "--name", "w", command=["echo", "ran"])
    sites.eventually(lambda: site.queued() == ["w"])
    _simsmi(site, "heal", "0")

    assert waiting.communicate(timeout=sites.PATIENCE_S)[0] == "ran\n"
