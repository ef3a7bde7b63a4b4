"""Our plugins, and our readers of who holds what, against a real kubelet and containerd."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from cluster import objects
from cluster.node.node import Node
from partage.core import errors
from partage.kubelet import checkpoint, plugin_folder, pod_resources
from partage.kubelet.device_lists import Unit
from partage.kubelet.plugins import Plugin

RESOURCE = "partage.test/unit"
KIND = "partage.test/set"


class Handler:
    """Names a CDI device by its IDs, and writes its specification when the container starts."""

    def __init__(self, folder: Path) -> None:
        self.error: errors.PartageError | None = None
        self.starts = 0
        self._folder = folder

    def allocated(self, resource: str, ids: frozenset[str]) -> str:
        """A name, and no specification yet."""
        return f"{KIND}={digest(ids)}"

    async def starting(self, resource: str, ids: frozenset[str]) -> None:
        """The container is told its IDs."""
        self.starts += 1
        if self.error is not None:
            raise self.error
        edits = {"env": [f"UNITS={','.join(sorted(ids))}"]}
        device = {"name": digest(ids), "containerEdits": edits}
        specification = {"cdiVersion": "0.5.0", "kind": KIND, "devices": [device]}
        aside = self._folder / f"{digest(ids)}.aside"
        aside.write_text(json.dumps(specification))
        aside.replace(self._folder / f"partage.test-{digest(ids)}.json")


def digest(ids: frozenset[str]) -> str:
    """A name made of IDs."""
    return hashlib.sha256(",".join(sorted(ids)).encode()).hexdigest()[:16]


@contextlib.asynccontextmanager
async def serving(node: Node, plugin: Plugin, folder: plugin_folder.Folder) -> AsyncIterator[None]:
    """The plugin at work on the node."""
    tasks = [asyncio.create_task(folder.watch()), asyncio.create_task(plugin.run())]
    try:
        await until(lambda: plugin.registered)
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for left in node.cdi.glob("partage.test-*.json"):
            left.unlink()


async def until(holds: Callable[[], Any]) -> Any:
    """Wait for something that is true sooner or later; asked in a thread, as it may block."""
    async with asyncio.timeout(60):
        while True:
            if result := await asyncio.to_thread(holds):
                return result
            await asyncio.sleep(0.1)


async def test_a_container_gets_its_units_and_is_known_by_them(
    clean_nodes: tuple[Node, Node],
) -> None:
    """It waits with our text in its status; then it runs, and both records of the kubelet agree."""
    node, client = clean_nodes[0], clean_nodes[0].plane.client
    handler, folder = Handler(node.cdi), plugin_folder.Folder(node.device_plugins)
    plugin = Plugin(RESOURCE, [Unit(f"u{n}") for n in range(4)], handler, folder)
    async with serving(node, plugin, folder):
        await until(lambda: allocatable(node) == "4")
        handler.error = errors.FenceError("no fence for u1", instead="mend it → now")
        limited = objects.container(limits={RESOURCE: 2})
        client.create(objects.running_pod("waits", limited, node_name=node.name))
        await until(lambda: "no fence for u1; mend it → now" in waiting(node, "waits"))
        handler.error = None
        await until(lambda: client.get("Pod", "waits")["status"]["phase"] == "Running")

        [holding] = checkpoint.read(node.device_plugins / checkpoint.NAME).holdings
        assert holding.pod_uid == client.get("Pod", "waits")["metadata"]["uid"]
        assert (holding.container, holding.resource) == ("main", RESOURCE)
        [listed] = await pod_resources.listed(node.pod_resources)
        assert (listed.namespace, listed.pod, listed.container) == ("default", "waits", "main")
        assert listed.resource == RESOURCE
        assert listed.ids == holding.ids
        assert len(holding.ids) == 2
        said = node.exec("waits", "main", "sh", "-c", "echo $UNITS").stdout
        assert set(said.strip().split(",")) == holding.ids

        plugin.update([Unit("u0"), Unit("u1"), Unit("u2"), Unit("u3", healthy=False)])
        await until(lambda: allocatable(node) == "3")


async def test_a_kubelet_that_restarts_loses_nothing(clean_nodes: tuple[Node, Node]) -> None:
    """It is killed; pods that run go on, and the next one gets its units."""
    node, client = clean_nodes[0], clean_nodes[0].plane.client
    handler, folder = Handler(node.cdi), plugin_folder.Folder(node.device_plugins)
    plugin = Plugin(RESOURCE, [Unit("u0"), Unit("u1")], handler, folder)
    async with serving(node, plugin, folder):
        await until(lambda: allocatable(node) == "2")
        limited = objects.container(limits={RESOURCE: 1})
        for number in range(2):
            name = f"pod-{number}"
            client.create(objects.running_pod(name, limited, node_name=node.name))
            await until(lambda: client.get("Pod", name)["status"]["phase"] == "Running")  # noqa: B023 (called at once)
            await asyncio.to_thread(node.restart_kubelet)
            await until(lambda: plugin.registered)
            await until(lambda: allocatable(node) == "2")
        for number in range(2):
            assert client.get("Pod", f"pod-{number}")["status"]["phase"] == "Running"
        held = checkpoint.read(node.device_plugins / checkpoint.NAME)
        assert sorted(sorted(holding.ids) for holding in held.holdings) == [["u0"], ["u1"]]
        assert held.registered[RESOURCE] == {"u0", "u1"}
        assert len(list(node.device_plugins.glob("partage-*.sock"))) == 1


async def test_200_000_short_ids_reach_the_kubelet(clean_nodes: tuple[Node, Node]) -> None:
    """Its client takes 4 MiB, and so do we say."""
    node = clean_nodes[0]
    folder = plugin_folder.Folder(node.device_plugins)
    units = [Unit(f"{number:05x}") for number in range(200_000)]
    plugin = Plugin(RESOURCE, units, Handler(node.cdi), folder)
    async with serving(node, plugin, folder):
        await until(lambda: allocatable(node) == "200k")
        plugin.update([Unit(unit.id, healthy=False) for unit in units])
        await until(lambda: allocatable(node) == "0")
        plugin.update([])


def allocatable(node: Node) -> str:
    """How many units the node offers."""
    status = node.plane.client.get("Node", node.name)["status"]
    return str(status["allocatable"].get(RESOURCE))


def waiting(node: Node, pod: str) -> str:
    """Why its container waits, as the pod's status has it."""
    status = node.plane.client.get("Pod", pod)["status"]
    return "".join(
        container["state"].get("waiting", {}).get("message", "")
        for container in status.get("containerStatuses", [])
    )
