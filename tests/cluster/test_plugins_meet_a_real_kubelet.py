"""Our plugins, and our readers of who holds what, against a real kubelet and containerd."""

from __future__ import annotations

import asyncio

from cluster import objects
from cluster.node.node import Node
from partage.core import errors
from partage.kubelet import checkpoint, plugin_folder, pod_resources
from partage.kubelet.device_lists import Unit
from partage.kubelet.plugins import Plugin
from tests.cluster import small_plugins

RESOURCE = "partage.test/unit"


async def test_a_container_gets_its_units_and_is_known_by_them(
    clean_nodes: tuple[Node, Node],
) -> None:
    """It waits with our text in its status; then it runs, and both records of the kubelet agree."""
    node, client = clean_nodes[0], clean_nodes[0].plane.client
    handler, folder = small_plugins.Handler(node.cdi), plugin_folder.Folder(node.device_plugins)
    plugin = Plugin(RESOURCE, [Unit(f"u{n}") for n in range(4)], handler, folder)
    async with small_plugins.serving(node, folder, plugin):
        await small_plugins.until(lambda: allocatable(node) == "4")
        handler.error = errors.FenceError("no fence for u1", instead="mend it → now")
        limited = objects.container(limits={RESOURCE: 2})
        client.create(objects.running_pod("waits", limited, node_name=node.name))
        await small_plugins.until(
            lambda: "no fence for u1; mend it → now" in waiting(node, "waits")
        )
        handler.error = None
        await small_plugins.until(
            lambda: client.get("Pod", "waits")["status"]["phase"] == "Running"
        )

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
        await small_plugins.until(lambda: allocatable(node) == "3")


async def test_a_kubelet_that_restarts_loses_nothing(clean_nodes: tuple[Node, Node]) -> None:
    """It is killed; pods that run go on, and the next one gets its units."""
    node, client = clean_nodes[0], clean_nodes[0].plane.client
    handler, folder = small_plugins.Handler(node.cdi), plugin_folder.Folder(node.device_plugins)
    plugin = Plugin(RESOURCE, [Unit("u0"), Unit("u1")], handler, folder)
    async with small_plugins.serving(node, folder, plugin):
        await small_plugins.until(lambda: allocatable(node) == "2")
        limited = objects.container(limits={RESOURCE: 1})
        for number in range(2):
            name = f"pod-{number}"
            client.create(objects.running_pod(name, limited, node_name=node.name))
            await small_plugins.until(lambda: phase(node, name) == "Running")  # noqa: B023 (called at once)
            await asyncio.to_thread(node.restart_kubelet)
            await small_plugins.until(lambda: plugin.registered)
            await small_plugins.until(lambda: allocatable(node) == "2")
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
    plugin = Plugin(RESOURCE, units, small_plugins.Handler(node.cdi), folder)
    async with small_plugins.serving(node, folder, plugin):
        await small_plugins.until(lambda: allocatable(node) == "200k")
        plugin.update([Unit(unit.id, healthy=False) for unit in units])
        await small_plugins.until(lambda: allocatable(node) == "0")
        plugin.update([])


def phase(node: Node, pod: str) -> str:
    """How far a pod is."""
    return str(node.plane.client.get("Pod", pod)["status"]["phase"])


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
