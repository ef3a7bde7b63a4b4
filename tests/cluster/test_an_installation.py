"""From nothing to a held container and back: Helm, the image, and two real nodes on a network.

All of Partage runs in pods, in the image that users get, beside a stock kube-scheduler. The GPUs
alone are simulated; NVIDIA's runtime is played by the nodes' own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import api, objects
from cluster.chart import helm
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.node import earlier_release, node, partage_image, program_image
from cluster.node.node import Node
from partage.agent import leftovers
from tests.cluster import coming_pods, inventory, making, test_pods_with_a_network
from tests.leaving_out import leave_out

pytestmark = pytest.mark.usefixtures("helm_program")

SPACE = "partage-system"
_PARTAGE = Path(sys.executable).with_name("partage")
_UNSERVED = "UnexpectedAdmissionError"
REPOSITORY, _, TAG = partage_image.NAME.rpartition(":")
VALUES = (
    *("--set", f"image.repository={REPOSITORY}", "--set", f"image.tag={TAG}"),
    *("--set", "agent.runtimeClassName=nvidia"),
)


@pytest.fixture(scope="module")
def earlier(nodes: tuple[Node, Node], partage_archive: Path) -> earlier_release.Release:
    """The release before this one, whose image the nodes have besides this one's."""
    try:
        release = earlier_release.ensure()
    except earlier_release.NoEarlier as error:
        leave_out("the release before this one", error)
    for real_node in nodes:
        real_node.import_archive(release.archive, name=f"{release.repository}:{release.tag}")
        real_node.import_archive(partage_archive)  # both archives have the same name for it
    return release


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
    before = inventory.taken(plane)
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
    _helm(plane, "uninstall", "partage", "--wait", "--timeout", "280s")
    _only_pods_are_left(nodes, before)
    assert _said(nodes, "first", "try", "1000").returncode == 0
    assert _said(nodes, "first", "try", "4000").returncode != 0
    plane.client.delete("Pod", "first", grace_seconds=0)
    plane.client.delete("Namespace", SPACE, "")
    making.eventually(lambda: _tidied(nodes))
    making.eventually(lambda: SPACE not in _names(plane, "Namespace"), patience_s=120)
    assert _partage(plane, "cleanup", "cluster").returncode == 0
    left = inventory.taken(plane) - before
    assert before <= inventory.taken(plane)  # nor was anything of others removed
    assert {kind for kind, _ in left} <= {"CustomResourceDefinition"}  # they are kept, by a value


@pytest.mark.slow  # every program of a cluster starts in a pod
def test_under_another_name(nodes: tuple[Node, Node]) -> None:
    """The doctor sees all of it with its own rights and is content, and nothing of it is left."""
    plane = nodes[0].plane
    before = inventory.taken(plane)
    other = ("--set", "nameOverride=sharing", "--set", "crds.keep=false")
    own = ("--create-namespace", "--take-ownership")  # of definitions that another release left
    _helm(plane, "install", "mine", helm.CHART, *own, *VALUES, *other)
    for real_node in nodes:
        _label(plane, real_node, "enabled")
    _wait_for_pods(plane)
    _helm(plane, "test", "mine", "--timeout", "180s")
    findings = _log_of(nodes, "sharing-doctor")
    assert any("Deployment partage-system/sharing-scheduler" in line for line in findings)
    unread = [line.split()[1:3] for line in findings if line.startswith("unchecked")]
    assert unread == [["Secret", f"{SPACE}/sharing-scheduler-tls"]]  # it has a key, and no server
    configured = _partage(plane, "scheduler-config").stdout
    assert f"urlPrefix: https://sharing-extender.{SPACE}.svc/scheduler" in configured
    _helm(plane, "uninstall", "mine", "--wait", "--timeout", "280s")
    plane.client.delete("Namespace", SPACE, "")
    making.eventually(
        lambda: inventory.taken(plane) <= before,
        patience_s=120,
        why=lambda: str(inventory.taken(plane) - before),
    )


def _log_of(nodes: tuple[Node, Node], pod: str) -> list[str]:
    where = nodes[0].plane.client.get("Pod", pod, SPACE)["spec"]["nodeName"]
    return next(
        one.logs(pod, "doctor", namespace=SPACE).splitlines() for one in nodes if one.name == where
    )


def _only_pods_are_left(nodes: tuple[Node, Node], before: set[tuple[str, str]]) -> None:
    """And what holds them: on their node the files that are in their containers."""
    plane = nodes[0].plane
    expected = {
        ("Namespace", SPACE),  # Helm made it, and leaves it
        ("ConfigMap", f"{SPACE}/kube-root-ca.crt"),
        ("ServiceAccount", f"{SPACE}/default"),
        ("Pod", "default/first"),
        *(("CustomResourceDefinition", name) for name in _names(plane, "CustomResourceDefinition")),
    }
    making.eventually(
        lambda: inventory.taken(plane) - before <= expected,
        why=lambda: str(inventory.taken(plane) - before - expected),
    )
    pod = plane.client.get("Pod", "first")
    assert pod["status"]["phase"] == "Running"
    for real_node in nodes:
        used = (f"{pod['metadata']['uid']}.main",) if _is_on(pod, real_node) else ()
        left = leftovers.find(_folders(real_node))
        assert {one.used_by for one in left} == ({used} if used else set())


def _tidied(nodes: tuple[Node, Node]) -> bool:
    """What was kept for a container goes when it has ended, by the same command."""
    for real_node in nodes:
        done = real_node.run_inside(_PARTAGE, "cleanup", "node", "--remove")
        assert done.returncode == 0, done
    return not any(leftovers.find(_folders(real_node)) for real_node in nodes)


def _folders(real_node: Node) -> leftovers.Folders:
    """Where a node has what its agent sees at the usual places."""
    return leftovers.Folders(
        root=real_node.root / "fences",
        library=real_node.root / "library" / "lib",
        cdi=real_node.cdi,
        device_plugins=real_node.device_plugins,
    )


def _is_on(pod: api.Object, real_node: Node) -> bool:
    name: str = pod["spec"]["nodeName"]
    return name == real_node.name


def _partage(plane: ControlPlane, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    return subprocess.run(
        [_PARTAGE, *words], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow  # all programs of a cluster are replaced twice, while pods come
def test_an_upgrade_and_back(nodes: tuple[Node, Node], earlier: earlier_release.Release) -> None:
    """From the release before to this one and back: nobody is lost, over, or free of limits."""
    plane = nodes[0].plane
    before = (
        "--set",
        f"image.repository={earlier.repository}",
        "--set",
        f"image.tag={earlier.tag}",
    )
    _helm(plane, "install", "partage", earlier.chart, "--create-namespace", *VALUES, *before)
    for real_node in nodes:
        _label(plane, real_node, "enabled")
    _wait_for_pods(plane)
    held = [_held_pod(real_node) for real_node in nodes]
    for pod in held:
        plane.client.create(pod)
    names = [pod["metadata"]["name"] for pod in held]
    making.eventually(lambda: all(_runs(plane, name) for name in names), patience_s=120)
    uids = _uids(plane, names)

    with coming_pods.ComingPods(plane, prefix="up-") as coming:
        _helm(plane, "upgrade", "partage", helm.CHART, *VALUES)
        _wait_for_pods(plane)
        making.eventually(lambda: _images(plane) == {partage_image.NAME})
        _check_coming(coming, earlier)
    _check_held(nodes, names, uids, restarts=1)

    with coming_pods.ComingPods(plane, prefix="down-") as coming:
        _helm(plane, "rollback", "partage", "1")
        _wait_for_pods(plane)
        making.eventually(lambda: _images(plane) == {f"{earlier.repository}:{earlier.tag}"})
        _check_coming(coming, earlier)
    _check_held(nodes, names, uids, restarts=2)


def _held_pod(real_node: Node) -> api.Object:
    """It tries again and again whether it is held, and says when it is not; it can be ended."""
    program = (
        "while ! [ -e /tmp/end ]; do "
        "gpu try 1000 >/dev/null || echo lost; gpu try 4000 >/dev/null && echo free; "
        "echo tried; sleep 0.5; done"
    )
    container = objects.container("sh", "-c", program, limits={"partage.dev/memory-mib": 2000})
    where = {"kubernetes.io/hostname": real_node.name}
    return objects.running_pod(f"held-{real_node.name}", container, nodeSelector=where)


def _check_held(
    nodes: tuple[Node, Node], names: list[str], uids: dict[str, str], *, restarts: int
) -> None:
    """They ran on, were held in every moment, and are held when their containers start anew."""
    plane = nodes[0].plane
    assert _uids(plane, names) == uids
    for real_node, name in zip(nodes, names, strict=True):
        (status,) = plane.client.get("Pod", name)["status"]["containerStatuses"]
        assert status["restartCount"] == restarts - 1
        tries = real_node.logs(name, "main").split()
        assert set(tries) == {"tried"}
        assert len(tries) > 3
        assert _said(nodes, name, "info").stdout.split()[2] == "2000"
        real_node.exec(name, "main", "touch", "/tmp/end")
    making.eventually(
        lambda: all(_restarts(plane, name) == restarts and _runs(plane, name) for name in names),
        patience_s=120,
    )
    for name in names:
        assert _said(nodes, name, "info").stdout.split()[2] == "2000"


def _check_coming(coming: coming_pods.ComingPods, earlier: earlier_release.Release) -> None:
    """Each had its share, was held to it, and ended well."""
    failed = coming.failed()
    if "partage.dev/away" not in (earlier.sources / "src/partage/dialects/nodes.py").read_text():
        # Its agents end without a word, and its extender knows no such word: for a moment kubelets
        # refuse what comes.
        failed = {n: status for n, status in failed.items() if _UNSERVED not in status}
    assert failed == {}
    assert coming.over == []
    assert coming.refused == []
    assert len(coming.ended_well) > 3


def _uids(plane: ControlPlane, names: list[str]) -> dict[str, str]:
    return {name: plane.client.get("Pod", name)["metadata"]["uid"] for name in names}


def _restarts(plane: ControlPlane, name: str) -> int:
    statuses = plane.client.get("Pod", name)["status"].get("containerStatuses", [])
    return sum(status["restartCount"] for status in statuses if status["state"].get("running"))


def _images(plane: ControlPlane) -> set[str]:
    """Of Partage, in all pods that are not on their way out."""
    pods = plane.client.call("GET", api.path("Pod", namespace=SPACE))["items"]
    return {
        pod["spec"]["containers"][0]["image"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and "kube-scheduler" not in pod["spec"]["containers"][0]["image"]
    }


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
            and agents.get("numberReady", 0) == agents.get("updatedNumberScheduled", 0) == 2
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


def _names(plane: ControlPlane, kind: str) -> set[str]:
    made = plane.client.call("GET", api.path(kind, namespace=""))["items"]
    return {item["metadata"]["name"] for item in made}
