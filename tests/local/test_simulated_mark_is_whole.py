"""Whose cards a ledger is of is written whole or not at all, however many come first at once."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import threading

from partage.core import errors
from partage.local.machine import simulated_driver
from partage.local.state import location
from tests.local import sites

CARDS = {simulated_driver.VARIABLE: "2x16GiB"}


def test_a_mark_that_could_not_be_written_is_no_mark(tmp_path: pathlib.Path) -> None:
    """A process that is cut off between making and writing it leaves the ledger to the next."""
    script = (
        "import pathlib, sys\n"
        "from partage.core import errors\n"
        "from partage.local.machine import simulated_driver\n"
        "from partage.local.state import location\n"
        "try:\n"
        "    simulated_driver.mark(location.opened(pathlib.Path(sys.argv[1])).path, '2x16GiB')\n"
        "except errors.LedgerError as error:\n"
        "    print(error)\n"
    )
    state = location.opened(tmp_path / "state")

    done = subprocess.run(
        ["prlimit", "--fsize=0:0", "--", sys.executable, "-c", script, state.path],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "cannot be written (File too large)" in done.stdout
    assert [path.name for path in state.path.iterdir() if "simulated" in path.name] == []
    simulated_driver.claim(state, CARDS)
    assert (state.path / "simulated").read_text("utf-8") == "2x16GiB"


def test_an_empty_mark_is_no_mark(site: sites.Site) -> None:
    """It was left by a process that was killed before it wrote; the next one writes it."""
    state = location.opened(site.folder)
    (state.path / "simulated").touch()

    done = site.partage("run", "--memory", "1GiB", "--", "echo", "ran")

    assert (done.stdout, done.returncode) == ("ran\n", 0), done.stderr
    assert (state.path / "simulated").read_text("utf-8") == "2x16GiB"
    assert site.partage("ps").returncode == 0


def test_nobody_sees_half_a_mark(tmp_path: pathlib.Path) -> None:
    """Those who look while it is made find none, or all of it."""
    seen: set[str] = set()
    fresh = [location.opened(tmp_path / str(number)) for number in range(300)]
    todo, ended = iter(fresh), threading.Event()
    now = [next(todo)]

    def look() -> None:
        while not ended.is_set():
            path = now[0].path / "simulated"
            if path.exists():
                seen.add(path.read_text("utf-8"))

    looker = threading.Thread(target=look)
    looker.start()
    for state in todo:
        now[0] = state
        simulated_driver.mark(state.path, "2x16GiB")
    ended.set()
    looker.join()

    assert seen <= {"2x16GiB"}


def test_of_two_with_different_cards_one_is_refused(tmp_path: pathlib.Path) -> None:
    """Also if both saw a ledger of nobody when they began."""
    for number in range(100):
        state = location.opened(tmp_path / str(number))
        both, refused = threading.Barrier(2), []

        def claim(cards: str) -> None:
            both.wait()  # noqa: B023 (joined below)
            try:
                simulated_driver.claim(state, {simulated_driver.VARIABLE: cards})  # noqa: B023
            except errors.LedgerError:
                refused.append(cards)  # noqa: B023

        racing = [threading.Thread(target=claim, args=[cards]) for cards in ("2x16GiB", "1x24GiB")]
        for thread in racing:
            thread.start()
        for thread in racing:
            thread.join()
        stays = (state.path / "simulated").read_text("utf-8")
        assert {stays, *refused} == {"2x16GiB", "1x24GiB"}
