"""``partage slurm gres-conf``: the lines for gres.conf and slurm.conf, from what NVML tells."""

from __future__ import annotations

import json
import pathlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core import errors
from partage.slurm.checks import machine_facts
from partage.slurm.configuration import gres_lines
from tests.local import sites
from tests.slurm import configurations

NODE = machine_facts.hosts()[0]


@pytest.fixture
def unequal(tmp_path: pathlib.Path) -> sites.Site:
    """A machine with two cards of different sizes."""
    return sites.Site(tmp_path, cards="24GiB:A30,16GiB")


def test_files_by_minor_number() -> None:
    """The driver's own numbers of the cards do not matter."""
    devices = [configurations.device(3), configurations.device(10), configurations.device(0)]

    lines = gres_lines.lines(devices, node="n1")

    assert lines.gres_conf == (
        "AutoDetect=off",
        "NodeName=n1 Name=gpu Type=tesla_t4 File=/dev/nvidia0",
        "NodeName=n1 Name=gpu Type=tesla_t4 File=/dev/nvidia3",
        "NodeName=n1 Name=gpu Type=tesla_t4 File=/dev/nvidia10",
        "NodeName=n1 Name=shard Count=16 File=/dev/nvidia0",
        "NodeName=n1 Name=shard Count=16 File=/dev/nvidia3",
        "NodeName=n1 Name=shard Count=16 File=/dev/nvidia10",
    )
    assert lines.slurm_conf == (
        "GresTypes=gpu,shard",
        "NodeName=n1 Gres=gpu:tesla_t4:3,shard:48",
    )


def test_mps_is_shared_by_all_cards() -> None:
    """In percent, and with the flag."""
    lines = gres_lines.lines(
        [configurations.device(0), configurations.device(1, 24576)], node="n1", sharing="mps"
    )

    flagged = [line for line in lines.gres_conf if "Name=mps" in line]
    assert flagged == [
        f"NodeName=n1 Name=mps Count=100 File=/dev/nvidia{n} Flags=all_sharing" for n in (0, 1)
    ]
    assert lines.slurm_conf[0] == "GresTypes=gpu,mps"


def test_one_model_with_several_sizes_is_several_types() -> None:
    """Slurm tells shards by type only."""
    lines = gres_lines.lines(
        [configurations.device(0), configurations.device(1, 24576)], node="n1", shards_per_gib=2
    )

    assert [(card.type, card.count) for card in lines.cards] == [
        ("tesla_t4_16384m", 32),
        ("tesla_t4_24576m", 48),
    ]
    assert "gpu:tesla_t4_16384m:1,gpu:tesla_t4_24576m:1,shard:80" in lines.slurm_conf[1]


def test_memory_that_is_no_whole_gib() -> None:
    """Only whole shards can be given away."""
    (card,) = gres_lines.lines([configurations.device(0, 15_356)], node="n").cards

    assert card.count == 14


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA GeForce RTX 4090", "geforce_rtx_4090"),
        ("Tesla T4", "tesla_t4"),
        ("4090", "gpu_4090"),
        ("a:b,c(d)[e]=f#g", "a_b_c_d_e_f_g"),
        ("", "gpu"),
        ("é", "gpu"),
    ],
)
def test_types(model: str, name: str) -> None:
    """From the model, made safe."""
    assert gres_lines.type_name(model) == name


@given(st.text(max_size=100))
def test_no_type_can_be_taken_for_something_else(model: str) -> None:
    """Neither for a number nor for the end of one."""
    name = gres_lines.type_name(model)

    assert name[0].isalpha()
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789._-")


def test_cards_that_are_left_out() -> None:
    """With the reason; the others are not affected."""
    good = configurations.device(0)
    replaced = msgspec.structs.replace
    bad = [
        replaced(configurations.device(1), mig=True),
        replaced(configurations.device(2), minor=None),
        replaced(configurations.device(3), problem="fallen off the bus"),
        configurations.device(4, 512),
    ]

    lines = gres_lines.lines([good, *bad], node="n1")

    assert [card.file for card in lines.cards] == ["/dev/nvidia0"]
    assert [left.reason for left in lines.left_out] == [
        "it is cut into MIG instances",
        "the driver does not tell its device file",
        "fallen off the bus",
        "it has less memory than one shard",
    ]
    with pytest.raises(errors.DeviceError, match="no card that Slurm could use"):
        gres_lines.lines(bad, node="n1")


def test_the_command(unequal: sites.Site) -> None:
    """On simulated cards: each has its own count."""
    done = unequal.partage("slurm", "gres-conf")
    unequal.end()

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "# gres.conf\n"
        "AutoDetect=off\n"
        f"NodeName={NODE} Name=gpu Type=simulated_a30 File=/dev/nvidia0\n"
        f"NodeName={NODE} Name=gpu Type=simulated_gpu File=/dev/nvidia1\n"
        f"NodeName={NODE} Name=shard Count=24 File=/dev/nvidia0\n"
        f"NodeName={NODE} Name=shard Count=16 File=/dev/nvidia1\n"
        "\n"
        "# slurm.conf (Gres belongs to the line that the node has already)\n"
        "GresTypes=gpu,shard\n"
        f"NodeName={NODE} Gres=gpu:simulated_a30:1,gpu:simulated_gpu:1,shard:40\n"
    )


def test_the_command_for_programs(unequal: sites.Site) -> None:
    """An object with a version and a kind."""
    done = unequal.partage("slurm", "gres-conf", "--shards-per-gib", "4", "-o", "json")
    unequal.end()

    answer = json.loads(done.stdout)
    assert (answer["apiVersion"], answer["kind"]) == ("output.partage.dev/v1", "SlurmGresLines")
    assert [card["count"] for card in answer["cards"]] == [96, 64]
    assert answer["slurm_conf"][0] == "GresTypes=gpu,shard"


def test_the_command_without_a_driver(unequal: sites.Site) -> None:
    """One line, and what to do."""
    done = unequal.partage("slurm", "gres-conf", env={"PARTAGE_SIMULATE": ""})
    unequal.end()

    assert (done.returncode, done.stdout) == (1, "")
    assert "this machine has no GPU that can be used" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("options", [("--shards-per-gib", "0"), ("--share", "both")])
def test_the_command_with_what_makes_no_sense(
    unequal: sites.Site, options: tuple[str, str]
) -> None:
    """Refused before the driver is asked."""
    done = unequal.partage("slurm", "gres-conf", *options)
    unequal.end()

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
