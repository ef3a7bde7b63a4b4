"""Accelerators of other vendors, with plugins of their own: shown, counted, and left alone."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import api, objects
from cluster.node.node import Node
from cluster.partage_processes.agent_process import Agent
from cluster.partage_processes.extender_process import Extender
from partage.kubelet import plugin_folder
from partage.kubelet.device_lists import Unit
from partage.kubelet.plugins import Plugin
from tests.cluster import making, small_plugins

PARTAGE = Path(sys.executable).with_name("partage")
ACCELERATOR = "sched.tensorstack.dev/accelerator"
CARDS = "partage.dev/cards"
AMOUNTS = {"amd.com/gpu": 4, "huawei.com/Ascend910": 2, "gpu-vendor.example/example-gpu": 1}
KINDS = {
    "amd.com/gpu": "AMD GPU",
    "huawei.com/Ascend910": "Huawei NPU",
    "gpu-vendor.example/example-gpu": "gpu-vendor.example",
}
LARGE_CARD = {"uuid": "GPU-theirs", "index": 0, "memory_mib": 64 * 1024}


@pytest.fixture
def site(clean_nodes: tuple[Node, Node], tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    """A node with Partage's agent, one without, the extender, and kube-scheduler."""
    ours, theirs = clean_nodes
    plane = ours.plane
    extender, agent = Extender(tmp_path, plane.kubeconfig), Agent(ours, plane.kubeconfig)
    try:
        extender.start()
        agent.start()
        making.schedule(plane, extender.port, advertised=())
        yield ours, theirs
    finally:
        plane.stop_scheduler()
        agent.close()
        extender.close()


@pytest.fixture(params=["amd-gpu", "huawei-npu"])
def labelled(site: tuple[Node, Node], request: pytest.FixtureRequest) -> Iterator[Node]:
    """The node of another vendor by its label; of NVIDIA's cards, too, an annotation speaks."""
    node = site[1]
    before = _node(node)["metadata"].get("annotations", {}).get(CARDS)
    text = json.dumps({"version": 1, "cards": [LARGE_CARD]})
    _write(node, labels={ACCELERATOR: request.param}, annotations={CARDS: text})
    yield node
    _write(node, labels={ACCELERATOR: None}, annotations={CARDS: before})


async def test_pods_have_them_and_people_see_who(site: tuple[Node, Node]) -> None:
    """Each by its own plugin, which a real kubelet asks; Partage has no part in it."""
    node = site[1]
    folder = plugin_folder.Folder(node.device_plugins)
    handler = small_plugins.Handler(node.cdi)
    plugins = [
        Plugin(resource, [Unit(f"{resource[:3]}{i}") for i in range(count)], handler, folder)
        for resource, count in AMOUNTS.items()
    ]
    async with small_plugins.serving(node, folder, *plugins):
        await small_plugins.until(lambda: _offered(node) == AMOUNTS)
        pods = {f"has-{i}": {resource: 1} for i, resource in enumerate(AMOUNTS)}
        for name, limits in pods.items():
            main = objects.container(limits=limits)
            node.plane.client.create(objects.running_pod(name, main))
        await small_plugins.until(lambda: all(_runs_on(node, name) for name in pods))
        rows = await asyncio.to_thread(_inspected, node)
        assert {row["resource"]: row["capacity"] for row in rows} == AMOUNTS
        assert {row["resource"]: row["accelerator"] for row in rows} == KINDS
        holders = {row["resource"]: [holder["pod"] for holder in row["pods"]] for row in rows}
        assert holders == {next(iter(limits)): [name] for name, limits in pods.items()}
        assert [row["used"] for row in rows] == [1, 1, 1]
        for name in pods:
            node.plane.client.delete("Pod", name)
        await small_plugins.until(lambda: not any(row["pods"] for row in _inspected(node)))


def test_no_request_of_partage_lands_there(site: tuple[Node, Node], labelled: Node) -> None:
    """Though it would be the only node with room; and nothing is written on it."""
    ours, client = site[0], site[0].plane.client
    before = _written(labelled)
    for i in range(3):
        main = objects.container(limits={making.MEMORY: 14})  # of 16 GiB on each of two cards
        client.create(objects.running_pod(f"share-{i}", main))
    making.eventually(lambda: _bound(ours) == 2)
    (waits,) = [name for name in _names() if not making.node_of(ours.plane, name)]
    making.told(ours.plane, waits, "1 the node has no GPU that Partage knows of")
    client.delete("Pod", next(name for name in _names() if name != waits))
    making.eventually(lambda: making.node_of(ours.plane, waits) == ours.name)
    assert _written(labelled) == before
    problems = {row["object"]: row["text"] for row in _inspection(ours)["problems"]}
    assert "another vendor's cards" in problems[f"node {labelled.name}"]


def _names() -> list[str]:
    return [f"share-{i}" for i in range(3)]


def _bound(node: Node) -> int:
    return sum(making.node_of(node.plane, name) == node.name for name in _names())


def _node(node: Node) -> api.Object:
    return node.plane.client.get("Node", node.name)


def _write(node: Node, **metadata: dict[str, str | None]) -> None:
    node.plane.client.patch("Node", node.name, {"metadata": metadata})


def _written(node: Node) -> list[Any]:
    """What the extender may write on a node: annotations, labels and taints."""
    now = _node(node)
    metadata = now["metadata"]
    return [metadata["annotations"], metadata["labels"], now["spec"].get("taints")]


def _offered(node: Node) -> dict[str, int]:
    amounts = _node(node)["status"]["allocatable"]
    return {resource: int(amounts.get(resource, 0)) for resource in AMOUNTS}


def _runs_on(node: Node, pod: str) -> bool:
    made = node.plane.client.get("Pod", pod)
    return (made["spec"].get("nodeName"), made["status"]["phase"]) == (node.name, "Running")


def _inspected(node: Node) -> list[dict[str, Any]]:
    """The other vendors' accelerators of a node, as people are shown them."""
    rows = _inspection(node)["other_accelerators"]
    return [row for row in rows if row["node"] == node.name]


def _inspection(node: Node) -> Any:
    options = ("-o", "json", "--kubeconfig", node.plane.kubeconfig)
    done = subprocess.run([PARTAGE, "inspect", *options], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)
