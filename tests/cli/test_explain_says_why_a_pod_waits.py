"""``partage explain``: the reasons of the extender, without one."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.cli import fake_cluster
from tests.cli.fake_cluster import node, pod, shared

MEMORY = "aliyun.com/gpu-mem"


@pytest.fixture
def busy(cluster: fake_cluster.Cluster) -> fake_cluster.Cluster:
    """A node of two 15 GiB cards with 10 taken of each, a smaller one, and pods that wait."""
    cluster.objects[fake_cluster.NODES] = [
        node("t4-1", memory=30, count=2),
        node("small", memory=4, count=1),
    ]
    cluster.objects[fake_cluster.PODS] = [
        shared("a", "t4-1", 10, 0),
        shared("b", "t4-1", 10, 1),
        shared("lost", "small", 1, 7),
        pod("large", "", {MEMORY: 9}, phase="Pending"),
        pod("huge", "", {MEMORY: 20}, phase="Pending"),
        pod("fine", "", {MEMORY: 5}, phase="Pending"),
        pod("wrong", "", {MEMORY: "4Gi"}, phase="Pending"),
    ]
    return cluster


async def test_what_is_short_on_each_node_and_what_would_fit(
    busy: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """The nearest node first; exit code 1, for it does not fit."""
    result = await busy.run("partage", "explain", "large", folder=tmp_path)
    assert result.code == 1
    short = "container c0: asks for 9216 MiB; card 0 has 5120 MiB, 4096 short, on node t4-1"
    never = "container c0 asks for 9216 MiB on one card; the largest card of node small has 4096"
    assert result.out.splitlines() == [
        f"default/large: not now: {short}",
        "would fit now: 5120 MiB instead of 9216",
        "",
        "NODE   WHEN     WHY",
        f"t4-1   not now  {short}",
        f"small  never    {never} MiB",
    ]


@pytest.mark.parametrize(
    ("name", "code", "begins"),
    [
        ("huge", 1, "default/huge: never: "),
        ("fine", 0, "default/fine: it fits on t4-1"),
        ("wrong", 1, "default/wrong: never: spec.containers[0].resources.limits"),
        ("a", 0, "default/a: it is bound to node t4-1"),
        ("lost", 0, "default/lost: it is bound to node small, but its record of what it has there"),
    ],
)
async def test_every_state_of_a_pod_has_its_words(
    busy: fake_cluster.Cluster, tmp_path: pathlib.Path, name: str, code: int, begins: str
) -> None:
    """Too large, free to go, not allowed, bound, damaged."""
    result = await busy.run("partage", "explain", name, folder=tmp_path)
    assert (result.code, result.err) == (code, "")
    assert result.out.startswith(begins)


async def test_the_total_of_its_namespace_may_be_what_a_pod_waits_for(
    busy: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """With the numbers, and what helps; exit code 1."""
    busy.objects[fake_cluster.NAMESPACES] = [fake_cluster.namespace("default", memory="24Gi")]

    result = await busy.run("partage", "explain", "fine", folder=tmp_path)

    assert result.code == 1
    text = (
        "namespace default may have 24 GiB of card memory and has 21 GiB; this pod asks for 5 GiB"
    )
    helps = "when others of them end, or when the namespace's partage.dev/most-memory is raised"
    assert result.out.splitlines()[:5] == [
        f"default/fine: not now: {text}; it can be bound {helps}",
        "would fit now: 3072 MiB instead of 5120",
        "",
        "NODE   WHEN     WHY",
        f"t4-1   not now  {text}",
    ]


async def test_json_has_the_cards_too(busy: fake_cluster.Cluster, tmp_path: pathlib.Path) -> None:
    """For programs."""
    result = await busy.run("partage", "explain", "-n", "default", "large", "-o", "json",
                          folder=tmp_path)  # fmt: skip
    explanation = json.loads(result.out)
    assert explanation["kind"] == "Explanation"
    nearest = explanation["nodes"][0]
    assert [lack["short"] for lack in nearest["shortages"]] == [4096, 4096]


async def test_a_pod_that_is_not_there_and_a_name_that_is_none(
    busy: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """One line, exit code 2."""
    instead = "'kubectl get pods -A' lists them"
    for name, what in (
        ("gone", "there is no pod default/gone"),
        ("NO", "'NO' is not a valid name of a pod or namespace"),
    ):
        result = await busy.run("partage", "explain", name, folder=tmp_path)
        assert (result.code, result.out, result.err) == (2, "", f"partage: {what}; {instead}\n")
