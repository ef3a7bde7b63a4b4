"""Whose cards a ledger is of is written whole or not at all, however many come first at once."""

from __future__ import annotations

import pathlib
import resource
import subprocess
import sys
import threading

from partage.core import errors
from partage.local import places, simulating
from tests.local import sites

CARDS = {simulating.VARIABLE: "2x16GiB"}


def test_a_mark_that_could_not_be_written_is_no_mark(tmp_path: pathlib.Path) -> None:
    """Whoever is cut off between making and writing it leaves the ledger to the next."""
    script = (
        "import pathlib, sys\n"
        "from partage.core import errors\n"
        "from partage.local import places, simulating\n"
        "try:\n"
        "    simulating.mark(places.opened(pathlib.Path(sys.argv[1])), '2x16GiB')\n"
        "except errors.LedgerError as error:\n"
        "    print(error)\n"
    )
    place = places.opened(tmp_path / "state")

    done = subprocess.run(
        [sys.executable, "-c", script, place.path],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        capture_output=True,
        text=True,
        check=True,
    )

    assert "cannot be written (File too large)" in done.stdout
    assert [path.name for path in place.path.iterdir() if "simulated" in path.name] == []
    simulating.claim(place, CARDS)
    assert (place.path / "simulated").read_text("utf-8") == "2x16GiB"


def test_an_empty_mark_is_no_mark(site: sites.Site) -> None:
    """It was left by somebody who was killed before he wrote it; the next one writes it."""
    place = places.opened(site.folder)
    (place.path / "simulated").touch()

    done = site.partage("run", "--memory", "1GiB", "--", "echo", "ran")

    assert (done.stdout, done.returncode) == ("ran\n", 0), done.stderr
    assert (place.path / "simulated").read_text("utf-8") == "2x16GiB"
    assert site.partage("ps").returncode == 0


def test_nobody_sees_half_a_mark(tmp_path: pathlib.Path) -> None:
    """Those who look while it is made find none, or all of it."""
    seen: set[str] = set()
    fresh = [places.opened(tmp_path / str(number)) for number in range(300)]
    todo, ended = iter(fresh), threading.Event()
    now = [next(todo)]

    def look() -> None:
        while not ended.is_set():
            path = now[0].path / "simulated"
            if path.exists():
                seen.add(path.read_text("utf-8"))

    looker = threading.Thread(target=look)
    looker.start()
    for place in todo:
        now[0] = place
        simulating.mark(place, "2x16GiB")
    ended.set()
    looker.join()

    assert seen <= {"2x16GiB"}


def test_of_two_with_different_cards_one_is_refused(tmp_path: pathlib.Path) -> None:
    """Also if both saw a ledger of nobody when they began."""
    for number in range(100):
        place = places.opened(tmp_path / str(number))
        both, refused = threading.Barrier(2), []

        def claim(cards: str) -> None:
            both.wait()  # noqa: B023 (joined below)
            try:
                simulating.claim(place, {simulating.VARIABLE: cards})  # noqa: B023
            except errors.LedgerError:
                refused.append(cards)  # noqa: B023

        racing = [threading.Thread(target=claim, args=[each]) for each in ("2x16GiB", "1x24GiB")]
        for each in racing:
            each.start()
        for each in racing:
            each.join()
        stays = (place.path / "simulated").read_text("utf-8")
        assert {stays, *refused} == {"2x16GiB", "1x24GiB"}
