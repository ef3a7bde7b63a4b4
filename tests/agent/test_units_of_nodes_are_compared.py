"""Nodes that count memory in different units are told; a pod keeps the unit it was started with."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from partage.agent.cluster import unit_comparison
from partage.agent.containers import compatibility, container_fence
from partage.core import grants
from partage.dialects import contract, pods
from partage.kube import api
from tests.agent import agent_node
from tests.agent.agent_node import GIB, MEMORY
from tests.agent.test_containers_are_started import Bench, env
from tests.kube import scripted_server

IN_GIB, IN_MIB = contract.Settings(), contract.Settings(memory_unit_mib=1)
LABEL = "partage.dev/memory-unit"


def listed(**units: str) -> scripted_server.Answer:
    """Nodes with their units."""
    items = [{"metadata": {"name": name, "labels": {LABEL: unit}}} for name, unit in units.items()]
    return scripted_server.Answer({"metadata": {}, "items": items})


@pytest.fixture
def texts() -> list[str]:
    """Nothing yet."""
    return []


@pytest.fixture
def comparer(client: api.Api, texts: list[str]) -> unit_comparison.Comparer:
    """Of a node that counts GiB."""
    return unit_comparison.Comparer(client, agent_node.NODE, IN_GIB, [MEMORY], differ=texts.append)


async def test_a_node_that_counts_otherwise_is_named(
    comparer: unit_comparison.Comparer, server: scripted_server.Server, texts: list[str]
) -> None:
    """With what to do; the API server looks for it, so that nobody has to read all nodes."""
    server.script(listed(other="MiB"))
    await comparer.look()
    [text] = texts
    assert text.startswith("node gpu-1 counts aliyun.com/gpu-mem in GiB, and node other in MiB")
    assert text.endswith("Start all agents with the same --memory-unit")
    [request] = server.requests
    assert (request.path, dict(request.query)) == (
        "/api/v1/nodes",
        {
            "labelSelector": f"{LABEL},{LABEL}!=GiB",
            "fieldSelector": "metadata.name!=gpu-1",
            "limit": "1",
        },
    )


async def test_where_all_agree_nothing_is_said(
    comparer: unit_comparison.Comparer, server: scripted_server.Server, texts: list[str]
) -> None:
    """The server finds none."""
    server.script(listed())
    await comparer.look()
    assert texts == []


@pytest.fixture
def bench(tmp_path: Path, fences: container_fence.Fences) -> Bench:
    """A node with two cards of 16 GiB, and nothing on it."""
    return Bench(tmp_path, fences)


@pytest.fixture
def lone(tmp_path: Path, fences: container_fence.Fences) -> Bench:
    """A node with one card, on which pods need no record."""
    return Bench(tmp_path, fences, 16 * GIB)


async def restarted(bench: Bench, counting: contract.Settings) -> dict[str, str]:
    """The environment of a container when it crashed under an agent with another unit."""
    bench.state.settings = counting
    bench.starter = bench.agent()
    await bench.starter.starting(MEMORY, frozenset({"p0"}))
    return env(bench.spec())


@pytest.mark.parametrize("counting", [IN_GIB, IN_MIB])
async def test_a_restarted_container_keeps_its_unit(
    bench: Bench, counting: contract.Settings
) -> None:
    """By its record, whatever unit the agent is told today."""
    bench.add(agent_node.pod("train", {MEMORY: 2}))
    before = env(await bench.start())
    assert (before["ALIYUN_COM_GPU_MEM_DEV"], before["ALIYUN_COM_GPU_MEM_POD"]) == ("16", "2")
    assert await restarted(bench, counting) == before


async def test_a_pod_without_a_record_keeps_its_unit(lone: Bench) -> None:
    """It is known by what it was started with: else it would be refused, as if it had moved."""
    lone.add(agent_node.unplaced("train", {MEMORY: 2}))
    before = env(await lone.start())
    assert before["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"
    assert await restarted(lone, IN_MIB) == before
    pod = lone.pods.by_uid["uid-train"]
    grant = lone.starter.enforced(pod)
    assert isinstance(grant, grants.Grant)
    assert grant.containers[0].shares[0].memory_mib == 2048  # which is what is reported, too


async def test_a_pod_without_a_record_that_comes_later_has_the_new_unit(lone: Bench) -> None:
    """Nothing says otherwise."""
    lone.state.settings = IN_MIB
    lone.add(agent_node.unplaced("train", {MEMORY: 2048}))
    assert env(await lone.start())["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2048"
    assert (await restarted(lone, IN_GIB))["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2048"


async def test_a_pod_that_was_placed_in_another_unit_has_that_one(bench: Bench) -> None:
    """Its words mean what the extender took them for; the numbers it sees are its own."""
    bench.state.settings = IN_MIB
    bench.add(agent_node.pod("train", {MEMORY: 2}))
    environment = env(await bench.start())
    assert (environment["ALIYUN_COM_GPU_MEM_DEV"], environment["ALIYUN_COM_GPU_MEM_CONTAINER"]) == (
        "16",
        "2",
    )


def test_what_cannot_be_read_is_counted_as_the_node_counts() -> None:
    """There is nothing to go by."""
    node = agent_node.facts().node
    stray = agent_node.unplaced("stray", {MEMORY: 2})
    other = agent_node.pod("own", {agent_node.OWN_CARDS: 1, agent_node.OWN_MEMORY: 100})
    empty = msgspec.structs.replace(stray, spec=pods.Spec(node_name=agent_node.NODE))
    for pod in (stray, other, empty):
        assert compatibility.counted_as(pod, node, IN_MIB, None) == IN_MIB
