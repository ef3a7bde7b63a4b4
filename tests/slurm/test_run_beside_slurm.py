"""``partage run`` on a machine that Slurm uses: cards that gres.conf names are left alone."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

import pytest

from partage.slurm.configuration import gres, statements
from partage.slurm.jobs import job_cards
from partage.slurm.node import managed_cards
from tests import simulated_machines
from tests.local import sites
from tests.slurm import configurations

HOST = os.uname().nodename.partition(".")[0]
FIRST = f"NodeName={HOST} Name=gpu Type=x File=/dev/nvidia0\n"
BOTH = f"NodeName={HOST} Name=gpu Type=x File=/dev/nvidia[0-1]\n"
NODE = f"GresTypes=gpu\nNodeName={HOST} Gres=gpu:x:1\n"
MANAGED = "card 0 is managed by Slurm (gres.conf)"


class Neighbour(sites.Site):
    """A machine with two cards that pass for real ones, and a configuration of Slurm."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        del self.environment["PARTAGE_SIMULATE"]
        machine = simulated_machines.machine(folder)
        self.environment |= {key: machine[key] for key in machine if key.startswith("SIMCUDA_")}
        self.environment["LD_LIBRARY_PATH"] = machine["LD_LIBRARY_PATH"]
        self.conf = folder / "conf"
        self.conf.mkdir()
        self.environment["SLURM_CONF"] = str(self.conf / "slurm.conf")

    def write(self, *, slurm: str = NODE, gres_conf: str | None = FIRST) -> None:
        """The two files."""
        (self.conf / "slurm.conf").write_text(slurm)
        if gres_conf is not None:
            (self.conf / "gres.conf").write_text(gres_conf)

    def echo(self, *options: str) -> subprocess.CompletedProcess[str]:
        """A program that gets a share at once, or is refused."""
        command = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
        return self.partage("run", "--no-wait", *options, "--", *command)

    def card(self, index: int) -> dict[str, Any]:
        """What ``partage ps`` says of a card."""
        card: dict[str, Any] = self.view()["cards"][index]
        return card


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Any:
    """Slurm has the first of two cards."""
    made = Neighbour(tmp_path)
    made.write()
    yield made
    made.end()


def test_its_card_is_never_given_away(site: Neighbour) -> None:
    """Programs get the other one, however many there are, and then none."""
    other = site.card(1)["uuid"]
    assert site.echo("--memory", "1GiB").stdout.strip() == other
    assert site.echo("--memory", "1GiB", "--policy", "spread").stdout.strip() == other
    assert site.echo("--exclusive", "--cards", "all").stdout.strip() == other
    assert site.echo("--limits", "aliyun.com/gpu-mem=3").stdout.strip() == other
    site.holding("--memory", "12GiB")
    done = site.echo("--memory", "8GiB")
    assert (done.returncode, "card 1 has 4096 of 8192 MiB free" in done.stderr) == (75, True)


@pytest.mark.parametrize("options", [("--card", "0"), ("--cards", "2")])
def test_who_asks_for_it_is_told_whose_it_is(site: Neighbour, options: tuple[str, ...]) -> None:
    """At once, and how to get it."""
    done = site.echo("--memory", "1GiB", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert MANAGED in done.stderr
    assert "--under-slurm" in done.stderr
    assert "srun --gres=" in done.stderr


def test_the_callers_variable_is_no_way_around(site: Neighbour) -> None:
    """CUDA_VISIBLE_DEVICES is a wish, too."""
    done = site.partage("run", "--memory", "1GiB", "--", "true", env={"CUDA_VISIBLE_DEVICES": "0"})
    assert done.returncode == 2
    assert f"CUDA_VISIBLE_DEVICES: {MANAGED}" in done.stderr


def test_fit_and_doctor_and_ps_say_so(site: Neighbour) -> None:
    """Each in its own form."""
    done = site.partage("fit", "--memory", "1GiB", "--cards", "2")
    assert done.returncode == 1
    assert MANAGED in done.stdout
    assert site.partage("fit", "--memory", "1GiB").stdout.endswith("fits now, on card 1\n")
    assert f"{MANAGED}, and not given away by `partage run`" in site.partage("doctor").stdout
    assert [card["managed_by"] for card in site.view()["cards"]] == ["slurm", ""]
    assert "Slurm has card 0" in site.partage("ps").stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("slurm", "gres_conf"),
    [
        (NODE, BOTH),
        (NODE, "AutoDetect=nvml\n"),
        (NODE, None),
        (f"NodeName={HOST} Gres=gpu:2\n", f"NodeName={HOST} Name=gpu Count=2\n"),
    ],
)
def test_where_it_does_not_say_which_cards_all_are_its_own(
    tmp_path: pathlib.Path, slurm: str, gres_conf: str | None
) -> None:
    """A card that two give away is the worse mistake."""
    site = Neighbour(tmp_path)
    site.write(slurm=slurm, gres_conf=gres_conf)
    done = site.echo("--memory", "1GiB")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cards 0, 1 are managed by Slurm" in done.stderr


@pytest.mark.parametrize(
    ("slurm", "gres_conf"),
    [
        (f"NodeName={HOST} CPUs=2\n", ""),
        ("NodeName=another Gres=gpu:2\n", "AutoDetect=nvml\n"),
        (NODE, f"NodeName={HOST} Name=gpu File=/dev/nvidia7\n"),
    ],
)
def test_cards_of_others_are_not_taken_for_its_own(
    tmp_path: pathlib.Path, slurm: str, gres_conf: str
) -> None:
    """A node without cards, another node, and a card that is not here."""
    site = Neighbour(tmp_path)
    site.write(slurm=slurm, gres_conf=gres_conf)
    done = site.echo("--memory", "1GiB", "--cards", "2")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("slurm", "gres_conf", "text"),
    [
        ("NodeName=n[1-\n", FIRST, "slurm.conf:1"),
        (NODE, "NodeName=x Name=gpu File\n", "gres.conf:1"),
        (NODE, f"NodeName={HOST} Name=gpu Count=many\n", "gres.conf:1"),
        ("\0\0", FIRST, "is not text"),
        (None, None, "there is no file"),
    ],
)
def test_files_that_are_damaged_are_told_and_nothing_is_given_away(
    tmp_path: pathlib.Path, slurm: str | None, gres_conf: str | None, text: str
) -> None:
    """With what to do, and without a traceback; those who only look still see the machine."""
    site = Neighbour(tmp_path)
    if slurm is not None:
        site.write(slurm=slurm, gres_conf=gres_conf)
    done = site.echo("--memory", "1GiB")
    assert (done.returncode, done.stdout) == (1, "")
    assert text in done.stderr
    assert "it is not known which cards Slurm gives away; `partage slurm check`" in done.stderr
    assert "Traceback" not in done.stderr
    view = site.view()
    assert len(view["cards"]) == 2
    assert view["problems"][0]["object"] == "slurm"
    assert "problem  managed" in site.partage("doctor").stdout


def test_who_waits_does_not_get_a_card_that_it_took_meanwhile(site: Neighbour) -> None:
    """The request was made when the card was free to be given away."""
    holder = site.holding("--memory", "16GiB")
    waiter = site.run("--memory", "16GiB", "--name", "late", command=["echo", "ran"])
    sites.eventually(lambda: site.queued() == ["late"])
    site.write(gres_conf=BOTH)
    holder.kill()
    out, err = waiter.communicate(timeout=sites.PATIENCE_S)
    assert (waiter.returncode, out) == (2, "")
    assert "card 1 is managed by Slurm" in err
    assert site.view()["tenants"] == []


def test_simulated_cards_are_not_its_own(site: Neighbour, tmp_path: pathlib.Path) -> None:
    """Whoever asks for simulated cards means no card of the machine."""
    state = {"PARTAGE_STATE": str(tmp_path / "other")}
    done = site.partage(
        *("--simulate", "16GiB", "run", "--memory", "1GiB", "--", "echo", "ran"), env=state
    )
    assert (done.returncode, done.stdout) == (0, "ran\n")


def test_under_slurm_means_inside_a_job(site: Neighbour) -> None:
    """Variables do not make a job."""
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0", "SLURM_STEP_GPUS": "0"}
    done = site.partage("run", "--under-slurm", "--memory", "1GiB", "--", "true", env=variables)
    assert done.returncode == 2
    assert "--under-slurm: this is not inside a job of Slurm" in done.stderr
    assert "srun --gres=gpu:1" in done.stderr


def test_under_slurm_is_about_this_machine(site: Neighbour, tmp_path: pathlib.Path) -> None:
    """Not about pods on other nodes."""
    (tmp_path / "pod.yaml").touch()
    done = site.partage("fit", "--under-slurm", "-f", tmp_path / "pod.yaml", "--node", "a=1x8Gi")
    assert (done.returncode, "--under-slurm" in done.stderr) == (2, True)


def _node(**more: Any) -> gres.Node:
    return gres.Node("gpu7", statements.Place("slurm.conf"), **more)


def _line(*files: str, name: str = "gpu") -> gres.Line:
    return gres.Line(statements.Place("gres.conf"), name, files=files)


def test_cards_are_known_by_minor_number_and_not_by_index() -> None:
    """The driver may count them in another order."""
    devices = [configurations.device(0), configurations.device(1)]
    assert [device.index for device in devices] == [7, 6]
    node = _node(lines=(_line("/dev/nvidia1"), _line("/dev/nvidia0", name="fpga")))
    assert managed_cards.managed([node], devices) == {"GPU-1"}


def test_a_job_has_what_the_controller_says_that_it_has_as_a_whole(
    tmp_path: pathlib.Path,
) -> None:
    """Not what another job has, and not a part; and not what a job of another user has."""
    files = [str(tmp_path / f"nvidia{number}") for number in range(3)]
    node = _node(lines=tuple(map(_line, files)))
    devices = [configurations.device(number) for number in range(3)]
    jobs = [_job(5, "gpu:1(IDX:1)"), _job(6, "gpu:1(IDX:0)"), _job(5, "shard:2(IDX:2)")]
    answers = {
        "scontrol": "NodeName=gpu7 Gres=gpu:3,shard:6 State=IDLE\n",
        "squeue": json.dumps({"jobs": jobs}),
    }

    def given(user: str) -> frozenset[str]:
        return job_cards.given(
            5, [node], devices, user=user, ask=lambda program, *_: answers[program]
        )

    assert given("alice") == {"GPU-1"}
    assert given("bob") == frozenset()


def _job(number: int, detail: str) -> dict[str, Any]:
    return {
        "job_id": number,
        "nodes": "gpu7",
        "user_name": "alice",
        "name": "",
        "gres_detail": [detail],
    }
