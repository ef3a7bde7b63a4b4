"""``--simulate`` and ``PARTAGE_SIMULATE``: simulated cards for who asks, and for nobody else."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from partage.core import errors
from partage.devices import nvml
from partage.local.machine import simulated_driver
from tests import leaving_out, simulated_machines
from tests.local import sites
from tests.local.sites import Site

MIB = 1 << 20


def _partage(
    *arguments: str, home: pathlib.Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """``partage`` of a user who has set nothing else."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("SIMCUDA_", "PARTAGE_"))}
    plain.pop("XDG_STATE_HOME", None)
    return subprocess.run(
        [str(sites.PARTAGE), *arguments],
        env=plain | {"HOME": str(home), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=sites.PATIENCE_S,
    )


def _cards(text: str) -> list[tuple[str, int]]:
    """The models and sizes in a view."""
    return [(card["model"], card["memory_mib"]) for card in json.loads(text)["cards"]]


@pytest.fixture
def no_driver() -> None:
    """Leave out on a machine that has a driver."""
    try:
        with nvml.Nvml():
            pass
    except errors.DeviceError:
        return
    leaving_out.leave_out("a machine without a GPU", "this one has a driver")


def test_the_option_and_the_variable_mean_the_same(tmp_path: pathlib.Path) -> None:
    """The same cards, and the same ledger."""
    option = _partage("--simulate", "2x16GiB", "ps", "-o", "json", home=tmp_path)
    variable = _partage("ps", "-o", "json", home=tmp_path, PARTAGE_SIMULATE="2x16GiB")
    for done in (option, variable):
        assert done.returncode == 0, done.stderr
        assert _cards(done.stdout) == [("Simulated GPU", 16384)] * 2
        view = json.loads(done.stdout)
        assert view["simulated"] is True
        assert view["ledger"] == str(tmp_path / ".local/state/partage/simulated-2x16GiB")


def test_the_option_wins(tmp_path: pathlib.Path) -> None:
    """Over the variable, and over cards that the environment names otherwise."""
    done = _partage(
        *("--simulate", "1GiB:Tesla T4", "ps", "-o", "json"),
        home=tmp_path,
        PARTAGE_SIMULATE="2x16GiB",
        SIMCUDA_CARDS="4x8GiB",
    )
    assert _cards(done.stdout) == [("Simulated Tesla T4", 1024)], done.stderr


def test_other_cards_are_another_machine(tmp_path: pathlib.Path) -> None:
    """What runs on one is nothing to the other."""
    plain = ["env", "-i", f"HOME={tmp_path}", f"PATH={os.environ['PATH']}"]
    inner = [*plain, str(sites.PARTAGE), "--simulate", "16GiB", "ps", "-o", "json"]
    outer = ["--simulate", "2x8GiB", "run", "--memory", "1GiB", "--", *inner]
    done = _partage(*outer, home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tenants"] == []
    assert {path.name for path in (tmp_path / ".local/state/partage").iterdir()} == {
        "simulated-2x8GiB",
        "simulated-16GiB",
    }


def test_the_program_meets_the_same_cards(tmp_path: pathlib.Path) -> None:
    """Its CUDA is the simulated one, with the card that it was given."""
    command = [sys.executable, str(sites.PROGRAM), "total"]
    done = _partage("--simulate", "8GiB", "run", "--memory", "25%", "--", *command, home=tmp_path)
    assert done.stdout == "2048\n", done.stderr


@pytest.mark.parametrize(
    "text",
    [
        *("2", "2x", "x16GiB", "0x16GiB", "33x16GiB", "100x1GiB", "-1x16GiB", "2x16", "2x16GB"),
        *("2x0GiB", "2x1234567GiB", "16GiB,", ",16GiB", "16GiB:", "lots", " 16GiB", "٢x16GiB"),
        *("16GiB,17x1GiB,16x1GiB", f"16GiB:{'x' * 54}", "16GiB:\n", "16GiB:é"),
        "1GiB," * 20 + "1GiB",
    ],
)
def test_what_are_no_cards_is_refused(text: str) -> None:
    """With what to write, before anything is changed."""
    environ: dict[str, str] = {}
    with pytest.raises(errors.InputError) as caught:
        simulated_driver.switch(text, environ)
    assert caught.value.what == f"--simulate: {text[:80]!r} is not a list of cards"
    assert environ == {}


def test_a_slip_is_one_line_by_either_way(tmp_path: pathlib.Path) -> None:
    """By the option and by the variable; nothing is made."""
    by_option = _partage("--simulate", "2x", "ps", home=tmp_path)
    by_variable = _partage("ps", home=tmp_path, PARTAGE_SIMULATE="2x")
    for done in (by_option, by_variable):
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "partage: --simulate: '2x' is not a list of cards; write up to 32, "
            "for example 2x16GiB, or 16GiB,24GiB:Tesla T4\n"
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("16GiB", 1),
        ("32x1GiB", 32),
        ("16GiB,24GiB", 2),
        ("2x512MiB:Tesla T4,80GiB:A100-SXM4", 3),
        (f"1GiB:{'~' * 53}", 1),
    ],
)
def test_what_is_let_through_the_simulated_driver_takes(
    tmp_path: pathlib.Path, text: str, count: int
) -> None:
    """Every such text is one that it can read."""
    done = _partage("ps", "-o", "json", home=tmp_path, PARTAGE_SIMULATE=text)
    assert len(_cards(done.stdout)) == count, done.stderr


def test_without_driver_and_switch_both_ways_out_are_named(
    tmp_path: pathlib.Path, no_driver: None
) -> None:
    """The driver to install, and the switch; an empty variable is none."""
    commands = (["ps"], ["run", "--memory", "1GiB", "--", "true"], ["fit", "--memory", "1GiB"])
    for command in (*commands, ["resize", "train", "--memory", "1GiB"]):
        done = _partage(*command, home=tmp_path, PARTAGE_SIMULATE="")
        assert done.returncode == 1
        assert done.stdout == ""
        assert "this machine has no GPU that can be used" in done.stderr
        assert "install NVIDIA's driver" in done.stderr
        assert "partage --simulate 2x16GiB" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--memory", "4", "--", "true"],
        ["run", "--limits", "aliyun.com/gpu-mem=x", "--", "true"],
        ["fit", "--memory", "4"],
        ["setup", "--user", "nosuch-user"],
    ],
)
def test_a_mistake_is_found_before_anything_is_made(
    tmp_path: pathlib.Path, command: list[str]
) -> None:
    """One line tells it, and the home is as it was."""
    done = _partage("--simulate", "2x16GiB", *command, home=tmp_path)
    assert done.returncode == (2 if os.geteuid() == 0 or command[0] != "setup" else 1)
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_table_says_simulated(site: Site) -> None:
    """Nobody can take what is printed for a real machine."""
    site.holding("--memory", "1GiB", "--name", "train")
    commands = (["ps"], ["ps", "-o", "wide"], ["fit", "--memory", "1GiB"])
    for command in (*commands, ["fence", "show"], ["fence", "levels"]):
        done = site.partage(*command)
        assert re.search(r"\(simulated\)", done.stdout), command
    for command in (["ps", "-o", "json"], ["fit", "--memory", "1GiB", "-o", "json"]):
        assert json.loads(site.partage(*command).stdout)["simulated"] is True
    done = site.partage("run", "--memory", "1GiB", "--", "true")
    assert "cards are simulated" in done.stderr


def test_nvidia_smi_is_there_and_says_simulated(site: Site) -> None:
    """Before a real one, for the program; and under the name that people know."""
    done = site.partage("run", "--memory", "1GiB", "--", "nvidia-smi")
    assert done.returncode == 0, done.stderr
    assert "everything here is simulated" in done.stdout
    listed = site.partage("run", "--memory", "1GiB", "--", "nvidia-smi", "-L")
    assert listed.stdout.count("Simulated") == len(site.view()["cards"])
    wrong = site.partage("run", "--memory", "1GiB", "--", "nvidia-smi", "--query-gpu=name")
    assert wrong.returncode == 2
    assert "simsmi, which looks at simulated GPUs: unknown command" in wrong.stderr


def test_without_the_switch_the_path_is_the_users(tmp_path: pathlib.Path) -> None:
    """Of what is simulated nothing is found."""
    script = (
        "import shutil, partage.local.machine.simulated_driver; print(shutil.which('nvidia-smi'))"
    )
    environment = {"PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "None\n"


def test_the_environment_is_switched_once() -> None:
    """A process that was switched and switches again has each folder once, and its own machine."""
    script = (
        "import os\n"
        "from partage.local.machine import simulated_driver\n"
        "for _ in range(2):\n"
        "    simulated_driver.switch('2x16GiB', os.environ)\n"
        "print(os.environ['LD_LIBRARY_PATH'])\n"
        "print(os.environ['PATH'])\n"
        "print(os.environ['SIMCUDA_STATE'])\n"
    )
    environment = {"PATH": "/usr/bin::/bin", "LD_LIBRARY_PATH": "/other:", "SIMCUDA_STATE": "/s"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    folder = simulated_machines.LIBRARIES
    assert done.stdout.splitlines() == [f"{folder}:/other", f"{folder}:/usr/bin::/bin", "/s"]


def test_on_means_switched() -> None:
    """By the variable alone, and not by an empty one."""
    assert simulated_driver.on({"PARTAGE_SIMULATE": "16GiB"})
    assert not simulated_driver.on({"PARTAGE_SIMULATE": ""})
    assert not simulated_driver.on({})


def test_a_folder_that_cannot_hold_simulated_cards_is_named(tmp_path: pathlib.Path) -> None:
    """And no driver is blamed for it."""
    (tmp_path / "file").touch()
    done = _partage(
        "ps", home=tmp_path, PARTAGE_SIMULATE="2x16GiB", PARTAGE_STATE=f"{tmp_path}/file"
    )

    assert done.returncode == 1
    assert f"{tmp_path}/file" in done.stderr
    assert "NVML" not in done.stderr


def test_a_ledger_is_of_simulated_cards_or_of_real_ones(tmp_path: pathlib.Path) -> None:
    """Neither other simulated cards nor real ones are granted from it."""
    site = sites.Site(tmp_path)
    try:
        site.holding("--memory", "1GiB")
        other = site.partage("ps", env={"PARTAGE_SIMULATE": "1x24GiB"})
        real = site.partage("ps", env={"PARTAGE_SIMULATE": ""})
    finally:
        site.end()

    assert other.returncode == real.returncode == 1
    assert "is of simulated cards (2x16GiB), not of simulated cards (1x24GiB)" in other.stderr
    assert "is of simulated cards (2x16GiB), not of real cards" in real.stderr
    assert "set PARTAGE_SIMULATE=2x16GiB," in real.stderr


def test_cards_with_a_blank_are_told_as_a_shell_takes_them(tmp_path: pathlib.Path) -> None:
    """What is to be set can be copied."""
    assert _partage("--simulate", "8GiB:Tesla T4", "ps", home=tmp_path).returncode == 0
    state = tmp_path / ".local/state/partage/simulated-8GiB_Tesla_T4"
    done = _partage("ps", home=tmp_path, PARTAGE_SIMULATE="8GiB", PARTAGE_STATE=str(state))
    assert "set PARTAGE_SIMULATE='8GiB:Tesla T4', or" in done.stderr
