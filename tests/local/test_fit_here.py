"""``partage fit`` on this machine: now, not now and why, or never; and nothing is taken."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.local import foreign_programs, sites
from tests.local.sites import Site


def _fit(site: Site, *options: object) -> tuple[int, list[str]]:
    done = site.partage("fit", *options)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def _fit_json(site: Site, *options: object) -> dict[str, Any]:
    done = site.partage("fit", *options, "-o", "json")
    prospect: dict[str, Any] = json.loads(done.stdout)
    assert (prospect["apiVersion"], prospect["kind"]) == ("output.partage.dev/v1", "Prospect")
    assert done.returncode == (0 if prospect["fits"] else 1)
    return prospect


def _waiting(site: Site, *options: object, name: str) -> subprocess.Popen[str]:
    """Somebody in the queue."""
    process = site.run(*options, "--name", name, command=["true"], stderr=subprocess.DEVNULL)
    sites.eventually(lambda: name in site.queued())
    return process


def test_what_fits_is_said_with_its_cards(site: Site) -> None:
    """Exit code 0, and which cards it would be."""
    site.holding("--memory", "14GiB", "--card", "0")
    assert _fit(site, "--memory", "4GiB") == (
        0,
        ["1 card, 4096 MiB (simulated): fits now, on card 1"],
    )
    assert _fit(site, "--cards", "2", "--memory", "2GiB", "--compute", "30") == (
        0,
        ["2 cards, 2048 MiB and 30 % compute each (simulated): fits now, on cards 0, 1"],
    )


def test_in_the_words_of_other_systems(site: Site) -> None:
    """As ``partage run`` takes them."""
    code, lines = _fit(site, "--limits", "aliyun.com/gpu-mem=3")
    assert (code, lines) == (0, ["1 card, 3072 MiB (simulated): fits now, on card 0"])


def test_a_limit_that_would_be_left_out_is_refused(site: Site) -> None:
    """Before anything runs without it: ``run`` and ``fit`` alike."""
    limits = "aliyun.com/gpu-mem=2,aliyun.com/gpu-core.percent=30"
    for arguments in (("fit", "--limits", limits), ("run", "--limits", limits, "--", "echo", "r")):
        done = site.partage(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no dialect knows aliyun.com/gpu-core.percent; the nearest name is" in done.stderr


def test_limits_with_another_effect_are_warned_of(site: Site) -> None:
    """One line for each on standard error, by ``run`` and ``fit`` alike; and it goes on."""
    limits = "tke.cloud.tencent.com/qgpu-core=130,tke.cloud.tencent.com/qgpu-memory=5"
    warning = "partage: --limits: 130 % and 5 GiB on 2 cards become 65 % and 2 GiB on each"
    fit = site.partage("fit", "--limits", limits)
    ran = site.partage("run", "--limits", limits, "--", "echo", "ran")
    assert (fit.returncode, fit.stderr.splitlines()) == (0, [warning])
    assert (ran.returncode, ran.stdout) == (0, "ran\n")
    assert ran.stderr.splitlines().count(warning) == 1


def test_nothing_is_taken(site: Site) -> None:
    """Asked as often as one likes, it is there, and nobody is in the ledger."""
    for _ in range(3):
        assert _fit(site, "--cards", "2", "--exclusive")[0] == 0
    view = site.view()
    assert (view["tenants"], view["waiting"]) == ([], [])
    assert list((site.folder / "leases").iterdir()) == []
    with site.book() as book:
        assert book.all() == []


def test_what_does_not_fit_now_is_said_with_who_is_in_the_way(site: Site) -> None:
    """Card by card what is short, and the names of those who have it; exit code 1."""
    site.holding("--memory", "12GiB", "--card", "0", "--name", "first")
    site.holding("--memory", "10GiB", "--card", "1", "--name", "second")
    assert _fit(site, "--memory", "8GiB") == (
        1,
        [
            "1 card, 8192 MiB (simulated): does not fit now; it would be number 1 in the queue",
            "  card 0 has 4096 of 8192 MiB free, card 1 has 6144 of 8192 MiB free",
            "  in the way: first, second",
        ],
    )
    prospect = _fit_json(site, "--memory", "8GiB", "--card", "1")
    assert (prospect["fits"], prospect["ever"], prospect["place"]) == (False, True, 1)
    assert prospect["held_by"] == ["second"]
    assert prospect["simulated"] is True


def test_who_waits_counts_for_the_place(site: Site) -> None:
    """Behind one that waits it would be the second."""
    site.holding("--exclusive", "--card", "0", "--name", "holder")
    _waiting(site, "--exclusive", "--card", "0", name="next")
    prospect = _fit_json(site, "--memory", "1GiB", "--card", "0")
    assert (prospect["fits"], prospect["place"], prospect["held_by"]) == (False, 2, ["holder"])


def test_room_that_is_somebody_elses_turn_is_no_room(site: Site) -> None:
    """What would delay one that waits does not fit, though the card has room for it."""
    site.holding("--memory", "10GiB", "--card", "0", "--name", "holder")
    _waiting(site, "--exclusive", "--card", "0", name="late")
    code, lines = _fit(site, "--memory", "1GiB", "--card", "0")
    assert code == 1
    assert lines == [
        "1 card, 1024 MiB (simulated): does not fit now; it would be number 2 in the queue",
        "  there is room, but it would delay late, which comes first",
    ]
    assert _fit(site, "--memory", "1GiB")[0] == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--memory", "17GiB"], "the largest card of this machine has 16384 MiB"),
        (["--cards", "3", "--memory", "1GiB"], "it asks for 3 cards; this machine has 2"),
        (
            ["--memory", "1GiB", "--model", "A100"],
            "it asks for cards of model A100; this machine has Simulated",
        ),
    ],
)
def test_what_never_fits_is_said(site: Site, options: list[str], reason: str) -> None:
    """However empty the machine becomes; nobody is in the way of that."""
    site.holding("--memory", "15GiB", "--cards", "2", "--name", "holder")
    code, (first, second) = _fit(site, *options)
    assert code == 1
    assert first.endswith("(simulated): never fits on this machine")
    assert reason in second
    prospect = _fit_json(site, *options)
    assert (prospect["fits"], prospect["ever"], prospect["held_by"]) == (False, False, [])
    assert prospect["place"] == 0, "it would not wait"


def test_foreign_processes_are_in_the_way_by_their_id(site: Site) -> None:
    """They have no name here."""
    with foreign_programs.on(site) as strangers:
        stranger = strangers.using(10_000)
        prospect = _fit_json(site, "--memory", "10GiB", "--card", "0")
        assert prospect["ever"] is True
        assert prospect["held_by"] == [f"process {stranger.pid}"]
        assert _fit(site, "--memory", "10GiB")[0] == 0, "the other card is free"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "no share of a card is asked for; add --memory 4GiB, --compute 30%, or --exclusive"),
        (["--memory", "4"], "--memory: 4 has no unit; write 4GiB or 4MiB"),
        (["--memory", "4GiB", "--node", "a=2x16Gi"], "-f FILE is missing"),
    ],
)
def test_what_cannot_be_used_is_exit_code_2(site: Site, options: list[str], text: str) -> None:
    """Before anything is looked at."""
    done = site.partage("fit", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr


def test_what_it_says_is_what_becomes_of_it(site: Site) -> None:
    """``partage run --no-wait`` gets the card that was named, or is refused for the same reason."""
    site.holding("--memory", "9GiB", "--card", "1")
    share = ("--memory", "8GiB")
    (card,) = _fit_json(site, *share)["cards"]
    site.holding(*share, "--name", "asked")
    assert [tenant["index"] for tenant in site.view()["tenants"] if tenant["name"] == "asked"] == [
        card
    ]
    site.holding("--memory", "1GiB", "--card", "0")
    prospect = _fit_json(site, *share)
    done = site.partage("run", *share, "--no-wait", "--", "echo", "never")
    assert (done.returncode, done.stdout) == (75, "")
    assert prospect["reason"] in done.stderr
