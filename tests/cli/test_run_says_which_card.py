"""``partage run`` says which card was given: to a person, and in a log after waiting."""

from __future__ import annotations

import contextlib
import pathlib
import re
import subprocess

import pytest

from tests.cli.top_terminals import PROGRAM, Terminal
from tests.local import sites
from tests.local.sites import Site

SHARE = ("--memory", "1GiB", "--name", "train")


def notices(stderr: str) -> list[str]:
    """The lines of Partage, without that of a ledger of one user."""
    return [line for line in stderr.splitlines() if "yours alone" not in line]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--card", "1"], "partage: train starts on card 1"),
        (["--cards", "2"], "partage: train starts on cards 0, 1"),
    ],
)
def test_a_person_is_told_the_card(site: Site, options: list[str], says: str) -> None:
    """In one line, before what the program writes."""
    command = [PROGRAM, "run", *SHARE, *options, "--", "echo", "its own words"]
    terminal = Terminal(*command, environment=site.environment)
    with contextlib.closing(terminal):
        assert terminal.end() == 0

    assert notices(terminal.said) == [says, "its own words"]


def test_a_person_who_wants_silence_has_it(site: Site) -> None:
    """By the variable that silences the fence, too."""
    command = [PROGRAM, "run", *SHARE, "--", "echo", "its own words"]
    terminal = Terminal(*command, environment={**site.environment, "PARTAGE_QUIET": "1"})
    with contextlib.closing(terminal):
        assert terminal.end() == 0

    assert notices(terminal.said) == ["its own words"]


def test_a_script_that_need_not_wait_is_told_nothing(site: Site) -> None:
    """What it finds on stderr is the program's, as with srun."""
    done = site.partage("run", *SHARE, "--", "echo", "its own words")

    assert (done.stdout, notices(done.stderr)) == ("its own words\n", [])


def test_a_log_is_told_that_waiting_has_ended(site: Site) -> None:
    """Whoever reads it sees from which line on the program speaks."""
    holder = site.holding("--exclusive", "--cards", "2")
    waiting = site.run(*SHARE, command=["echo", "its own words"])
    sites.eventually(lambda: site.names("waiting") == ["train"])

    holder.kill()
    out, err = waiting.communicate(timeout=60)

    assert out == "its own words\n"
    place, start = notices(err)
    assert place.startswith("partage: place 1 of 1 ")
    assert re.fullmatch(r"partage: train starts on card [01] after waiting \d+s", start)


def test_standard_error_that_is_full_changes_no_exit_code(site: Site) -> None:
    """75 stays 75: a script decides by it whether to try again."""
    site.holding("--exclusive", "--cards", "2")
    with pathlib.Path("/dev/full").open("w") as full:
        for buffered in ({}, {"PYTHONUNBUFFERED": "1"}):
            done = subprocess.run(
                [PROGRAM, "run", *SHARE, "--no-wait", "--", "true"],
                env={**without_buffering(site), **buffered},
                stderr=full,
                check=False,
            )
            assert done.returncode == 75


def without_buffering(site: Site) -> dict[str, str]:
    """Its environment, with Python's usual buffers."""
    return {name: text for name, text in site.environment.items() if name != "PYTHONUNBUFFERED"}


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        ("4G", "partage: --memory 4G is decimal, 3815 MiB; 4GiB would be 4096 MiB"),
        ("1.5G", "partage: --memory 1.5G is decimal, 1431 MiB; 1.5GiB would be 1536 MiB"),
        ("2000M", "partage: --memory 2000M is decimal, 1908 MiB; 2000MiB would be 2000 MiB"),
    ],
)
def test_a_decimal_amount_is_said_once(site: Site, memory: str, says: str) -> None:
    """Tools around GPUs write G, or GB, and mean GiB."""
    done = site.partage("run", "--memory", memory, "--", "true")
    assert notices(done.stderr) == [says]
    fits = site.partage("fit", "--memory", memory)
    assert notices(fits.stderr) == [says]


@pytest.mark.parametrize("memory", ["4GiB", "4Gi", "25%"])
def test_other_amounts_are_what_they_seem(site: Site, memory: str) -> None:
    """Nothing is said of them."""
    assert notices(site.partage("run", "--memory", memory, "--", "true").stderr) == []


def test_a_decimal_amount_of_a_resize_is_said_too(site: Site) -> None:
    """It takes the same words."""
    site.holding("--memory", "1GiB", "--name", "train")

    done = site.partage("resize", "train", "--memory", "2G")

    assert done.returncode == 0, done.stderr
    assert notices(done.stderr) == [
        "partage: --memory 2G is decimal, 1908 MiB; 2GiB would be 2048 MiB"
    ]
