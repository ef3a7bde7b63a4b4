"""From nothing to a held container and back: Helm, the image, and two real nodes on a network.

All of Partage runs in pods, in the image that users get, beside a stock kube-scheduler. The GPUs
alone are simulated; NVIDIA's runtime is played by the nodes' own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import api, objects
from cluster.chart import helm
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.node import node, partage_image, program_image
from cluster.node.node import Node
from tests.cluster import making, test_pods_with_a_network

pytestmark = pytest.mark.usefixtures("helm_program")

SPACE = "partage-system"
REPOSITORY, _, TAG = partage_image.NAME.rpartition(":")
VALUES = (
    *("--set", f"image.repository={REPOSITORY}", "--set", f"image.tag={TAG}"),
    *("--set", "agent.runtimeClassName=nvidia"),
)
# What people would look for after they have removed it.
KINDS = (
    *("ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration", "Namespace"),
    *("ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "PriorityClass"),
    *("ValidatingAdmissionPolicyBinding", "CustomResourceDefinition", "RuntimeClass"),
)
SPACED = ("ConfigMap", "Secret", "ServiceAccount", "Service", "Role", "RoleBinding", "Pod")


@pytest.fixture(scope="module")
def nodes(
    programs: Path, partage_archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Node, Node]]:
    """Two nodes with a card each, which have the images, in a cluster without Partage."""
    test_pods_with_a_network.check_machine()
    folder = tmp_path_factory.mktemp("installation")
    scheduler = folder / "kube-scheduler.tar"
    program_image.write("kube-scheduler", scheduler)
    with ControlPlane(folder / "control-plane", controllers=True, networked=True) as plane:
        started = (Node(plane, folder / "1", 1), Node(plane, folder / "2", 2))
        try:
            node.start_all(started)
            for real_node in started:
                real_node.import_archive(partage_archive)
                real_node.import_archive(scheduler)
            plane.client.create(objects.runtime_class("nvidia"))
            plane.start_scheduler(scheduler_config.plain(plane.kubeconfig))
            yield started
        finally:
            for real_node in started:
                real_node.stop()


@pytest.mark.slow  # every program of a cluster starts in a pod, twice
def test_in_and_out_again(nodes: tuple[Node, Node]) -> None:
    """The first pod has its share and is held to it; what is left in the end is what is told."""
    plane = nodes[0].plane
    before = _inventory(plane)
    _helm(plane, "install", "partage", helm.CHART, "--create-namespace", *VALUES)
    for real_node in nodes:
        _label(plane, real_node, "enabled")
    _wait_for_pods(plane)
    _first_pod_is_held(nodes)
    _helm(plane, "test", "partage", "--timeout", "180s")
    _helm(plane, "upgrade", "partage", helm.CHART, *VALUES, "--set", "extender.policy=spread")
    _wait_for_pods(plane)
    assert _said(nodes, "first", "try", "1000").returncode == 0
    assert _said(nodes, "first", "try", "4000").returncode != 0
    _helm(plane, "uninstall", "partage", "--wait", "--timeout", "180s")
    plane.client.delete("Namespace", SPACE, "")
    making.eventually(lambda: SPACE not in _names(plane, "Namespace"), patience_s=120)
    assert plane.client.get("Pod", "first")["status"]["phase"] == "Running"
    plane.client.delete("Pod", "first", grace_seconds=0)
    left = _inventory(plane) - before
    assert {kind for kind, _ in left} <= {"CustomResourceDefinition"}  # they are kept, by a value


def _first_pod_is_held(nodes: tuple[Node, Node]) -> None:
    """The webhooks complete it, the second scheduler places it, an agent starts it."""
    container = objects.container(limits={"partage.dev/memory-mib": 2000})
    nodes[0].plane.client.create(objects.running_pod("first", container))
    making.eventually(lambda: _runs(nodes[0].plane, "first"), patience_s=120)
    pod = nodes[0].plane.client.get("Pod", "first")
    assert pod["spec"]["schedulerName"] == "partage-scheduler"
    assert _said(nodes, "first", "info").stdout.split()[2] == "2000"
    assert _said(nodes, "first", "try", "1000").returncode == 0
    assert _said(nodes, "first", "try", "4000").returncode != 0


def _said(nodes: tuple[Node, Node], pod: str, *words: str) -> subprocess.CompletedProcess[str]:
    where = nodes[0].plane.client.get("Pod", pod)["spec"]["nodeName"]
    return next(one for one in nodes if one.name == where).exec(pod, "main", "gpu", *words)


def _helm(plane: ControlPlane, *words: str | Path) -> str:
    return helm.run(*words, "--namespace", SPACE, kubeconfig=plane.kubeconfig)


def _label(plane: ControlPlane, real_node: Node, value: str | None) -> None:
    labels = {"metadata": {"labels": {"partage.dev/agent": value}}}
    plane.client.patch("Node", real_node.name, labels, namespace="")


def _wait_for_pods(plane: ControlPlane) -> None:
    """All that should be ready is: of the extender the one that leads, of all others each."""

    def are_ready() -> bool:
        deployments = plane.client.call("GET", api.path("Deployment", namespace=SPACE))["items"]
        daemons = plane.client.call("GET", api.path("DaemonSet", namespace=SPACE))["items"]
        agents = daemons[0]["status"]
        return (
            all(map(_is_ready, deployments))
            and _is_current(daemons[0])
            and (agents.get("numberReady", 0) == agents.get("desiredNumberScheduled") == 2)
        )

    making.eventually(are_ready, patience_s=180, why=lambda: _states(plane))


def _is_ready(deployment: api.Object) -> bool:
    status, name = deployment["status"], deployment["metadata"]["name"]
    expected = 1 if name.endswith("-extender") else deployment["spec"]["replicas"]
    updated = status.get("updatedReplicas", 0) == deployment["spec"]["replicas"]
    return _is_current(deployment) and updated and status.get("readyReplicas", 0) >= expected


def _is_current(made: api.Object) -> bool:
    current: bool = made["status"].get("observedGeneration") == made["metadata"]["generation"]
    return current


def _runs(plane: ControlPlane, name: str) -> bool:
    phase: str = plane.client.get("Pod", name)["status"].get("phase", "")
    return phase == "Running"


def _states(plane: ControlPlane) -> str:
    """For whoever reads a failure."""
    pods = plane.client.call("GET", api.path("Pod", namespace=SPACE))["items"]
    lines = [f"{pod['metadata']['name']}: {str(pod['status'])[:700]}" for pod in pods]
    events = plane.client.call("GET", api.path("Event", namespace=SPACE))["items"]
    return "\n".join([*lines, *(event["message"][:300] for event in events[-20:])])


def _inventory(plane: ControlPlane) -> set[tuple[str, str]]:
    """All objects but those that come and go by themselves."""
    objects_of = {(kind, name) for kind in KINDS for name in _names(plane, kind)}
    for kind in SPACED:
        for made in plane.client.call("GET", api.path(kind, namespace=""))["items"]:
            meta = made["metadata"]
            objects_of.add((kind, f"{meta['namespace']}/{meta['name']}"))
    return objects_of


def _names(plane: ControlPlane, kind: str) -> set[str]:
    made = plane.client.call("GET", api.path(kind, namespace=""))["items"]
    return {item["metadata"]["name"] for item in made}
