"""A program gets what it was granted, in every family's words, and its neighbours theirs."""

from __future__ import annotations

import pathlib
import sys

import pytest

from tests.local import sites
from tests.local.sites import Site

CARD_MIB, CONTEXT_MIB = 16 * 1024, 256


def _gpu(site: Site, *doing: object, options: tuple[object, ...]) -> str:
    """What a CUDA program with a share says."""
    command = [sys.executable, str(sites.PROGRAM), *map(str, doing)]
    done = site.partage("run", *options, "--", *command)
    assert done.returncode == 0, done.stderr
    return str(done.stdout).strip()


def test_past_the_share_memory_is_out(site: Site) -> None:
    """CUDA says so (error 2), however much the card still has; up to the share it does not."""
    share = ("--memory", "2GiB")
    assert _gpu(site, "try", 2048 - CONTEXT_MIB, options=share) == "got it"
    assert _gpu(site, "try", 2048 - CONTEXT_MIB + 1, options=share) == "error 2"
    assert _gpu(site, "try", 4096, options=share) == "error 2"


def test_the_card_looks_as_large_as_the_share(site: Site) -> None:
    """A program that sizes itself by what there is sizes itself by what it may have."""
    assert _gpu(site, "total", options=("--memory", "3GiB")) == "3072"
    assert _gpu(site, "total", options=("--memory", "25%")) == str(CARD_MIB // 4)


def test_an_exclusive_card_is_the_whole_card(site: Site) -> None:
    """All of its memory, to the last MiB; beside it nobody is let in."""
    assert _gpu(site, "total", options=("--exclusive",)) == str(CARD_MIB)
    most = CARD_MIB - CONTEXT_MIB
    assert _gpu(site, "try", most, options=("--exclusive",)) == "got it"
    site.using(most, "--exclusive", "--name", "alone")
    neighbour = site.using(0, "--memory", "1GiB", "--name", "other")
    cards = {tenant["name"]: tenant["uuid"] for tenant in site.view()["tenants"]}
    assert cards["alone"] != cards["other"]
    assert neighbour.poll() is None
    done = site.partage("run", "--exclusive", "--no-wait", "--", "echo", "never")
    assert (done.returncode, done.stdout) == (75, "")


def test_neighbours_do_not_feel_who_asks_for_too_much(site: Site) -> None:
    """Two hold all they were granted of one card while a third runs into its share, and after."""
    on_first = ("--card", "0")
    held = 6144 - CONTEXT_MIB
    first = site.using(held, "--memory", "6GiB", *on_first, "--name", "first")
    second = site.using(held, "--memory", "6GiB", *on_first, "--name", "second")
    third = (*on_first, "--memory", "4GiB")
    assert _gpu(site, "try", CARD_MIB, options=third) == "error 2"
    assert _gpu(site, "try", 4096 - CONTEXT_MIB, options=third) == "got it"
    assert first.poll() is None
    assert second.poll() is None
    used = {tenant["name"]: tenant["used_bytes"] for tenant in site.view()["tenants"]}
    assert used == {"first": 6144 << 20, "second": 6144 << 20}


def test_what_was_refused_is_counted(site: Site) -> None:
    """The view says which program ran into its limit."""
    program = site.run(
        "--memory", "1GiB", command=[sys.executable, str(sites.PROGRAM), "step"], stdin=-1
    )
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write("try 2048\n")
    program.stdin.flush()
    assert program.stdout.readline() == "error 2\n"
    assert [tenant["refused"] for tenant in site.view()["tenants"]] == [1]


# For each family in docs/dialects.md: the words; how many cards are granted, and MiB and percent of
# compute of each; and what that family's programs find in their environment.
_FAMILIES = {
    "aliyun": (
        ["aliyun.com/gpu-mem=3"],
        (1, 3072, 0),
        {
            "ALIYUN_COM_GPU_MEM_IDX": "0",
            "ALIYUN_COM_GPU_MEM_DEV": "16",
            "ALIYUN_COM_GPU_MEM_POD": "3",
            "ALIYUN_COM_GPU_MEM_CONTAINER": "3",
        },
    ),
    "aliyun, compute": (
        ["aliyun.com/gpu-mem=2,aliyun.com/gpu-core.percentage=30"],
        (1, 2048, 30),
        {"ALIYUN_COM_GPU_MEM_CONTAINER": "2"},
    ),
    "qgpu": (
        ["tke.cloud.tencent.com/qgpu-core=30", "tke.cloud.tencent.com/qgpu-memory=5"],
        (1, 5120, 30),
        {},
    ),
    "qgpu, two": (
        ["tke.cloud.tencent.com/qgpu-core=160", "tke.cloud.tencent.com/qgpu-memory=6"],
        (2, 3072, 80),
        {},
    ),
    "gaia": (
        ["tencent.com/vcuda-core=20", "tencent.com/vcuda-memory=4"],
        (1, 1024, 20),
        {},
    ),
    "elastic": (["elasticgpu.io/gpu-core=30,elasticgpu.io/gpu-memory=4096"], (1, 4096, 30), {}),
    "elastic, com": (["elasticgpu.com/gpu-memory=1024"], (1, 1024, 0), {}),
    "t9k": (
        ["tensorstack.dev/nvidia-gpu-percent=30"],
        (1, 4915, 0),
        {"T9K_GPU_PERCENT": "30", "T9K_GPU_MEMORY": "4915"},
    ),
    "t9k, cards": (["tensorstack.dev/nvidia-gpu=2"], (2, CARD_MIB, 100), {}),
    "t9k, node": (["tensorstack.dev/nvidia-gpu-node=1"], (2, CARD_MIB, 100), {}),
    "hami": (
        ["nvidia.com/gpu=2", "nvidia.com/gpumem=3000", "nvidia.com/gpucores=30"],
        (2, 3000, 30),
        {
            "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
            "CUDA_DEVICE_MEMORY_LIMIT_1": "3000m",
            "CUDA_DEVICE_SM_LIMIT": "30",
        },
    ),
    "nvidia": (["nvidia.com/gpu=1"], (1, CARD_MIB, 100), {}),
    "partage": (
        ["partage.dev/cards=2,partage.dev/memory-mib=2048,partage.dev/compute-percent=30"],
        (2, 2048, 30),
        {},
    ),
}


@pytest.mark.parametrize("family", _FAMILIES)
def test_every_familys_words_mean_what_they_mean_there(
    site: Site, tmp_path: pathlib.Path, family: str
) -> None:
    """The share is the one of docs/dialects.md, and the family's variables are there."""
    words, (count, memory_mib, percent), variables = _FAMILIES[family]
    limits = [argument for word in words for argument in ("--limits", word)]
    seen = tmp_path / "environment"
    program = site.run(
        *limits, command=["sh", "-c", f"env -0 > {seen}; echo started; exec sleep 600"]
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "started\n", program.communicate()[1]
    tenants = site.view()["tenants"]
    shares = [(tenant["memory_mib"], tenant["compute_percent"]) for tenant in tenants]
    assert shares == [(memory_mib, percent)] * count
    assert {tenant["exclusive"] for tenant in tenants} == {memory_mib == CARD_MIB}
    assert {tenant["dialect"] for tenant in tenants} == {family.partition(",")[0]}
    environment = dict(line.split("=", 1) for line in seen.read_text().split("\0") if line)
    assert {name: environment.get(name) for name in variables} == variables
    uuids = [tenant["uuid"] for tenant in tenants]
    assert environment["CUDA_VISIBLE_DEVICES"].split(",") == uuids
    assert environment["NVIDIA_VISIBLE_DEVICES"] == environment["CUDA_VISIBLE_DEVICES"]
