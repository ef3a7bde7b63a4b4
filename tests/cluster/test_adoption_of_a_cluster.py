"""A cluster of gpushare's is taken over and given back, on real nodes, by the real command.

gpushare's two programs are stand-ins (``gpushare_stand_in.py``) in pods, under its names, with its
rights, before a stock kube-scheduler with its configuration. All else is real: Partage's image, the
kubelets, what they ask of plugins and keep. The GPUs alone are simulated.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import api, objects
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.node import node, partage_image
from cluster.node.node import Node
from partage.cli.cluster.adoption import objects as written_objects
from tests.cluster import making, originals, test_pods_with_a_network

Nodes = tuple[Node, Node]

PARTAGE = Path(sys.executable).with_name("partage")
STAND_IN = Path(__file__).with_name("gpushare_stand_in.py")
PYTHON = "/usr/bin/python3.13"
MEMORY, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
INDEX, ASSIGNED = "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_ASSIGNED"
KINDS = (
    *("Deployment", "DaemonSet", "ServiceAccount", "Service", "Secret", "ConfigMap"),
    *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
)
# Controllers count in them.
COUNTERS = ("deprecated.daemonset.template.generation", "deployment.kubernetes.io/revision")


@pytest.fixture(scope="module")
def nodes(
    programs: Path, partage_archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Nodes]:
    """Two nodes on a network with gpushare at work, as its stand-ins do it."""
    test_pods_with_a_network.check_machine()
    folder = tmp_path_factory.mktemp("adoption")
    with ControlPlane(folder / "control-plane", controllers=True, networked=True) as plane:
        started = (Node(plane, folder / "1", 1), Node(plane, folder / "2", 2))
        try:
            node.start_all(started)
            for real_node in started:
                real_node.import_archive(partage_archive)
            plane.client.create(objects.runtime_class("nvidia"))
            _install(started)
            yield started
        finally:
            for real_node in started:
                real_node.stop()


@pytest.mark.slow  # every program of two systems starts in a pod on two nodes, one after the other
def test_gpushare_is_taken_over_and_given_back(nodes: Nodes) -> None:
    """What runs runs on, the next pod is held to its share, and in the end all is as it was."""
    plane = nodes[0].plane
    tenants = [_hold(nodes, "a", 3), _hold(nodes, "b", 5)]
    before, containers = _inventory(plane), _containers(plane, "a", "b")
    planned = _adopt(plane, "--image", partage_image.NAME, "--dry-run", "-o", "json").stdout
    _check_plan(json.loads(planned), nodes, tenants)
    assert _inventory(plane) == before

    _kill_in_the_middle(plane)
    done = json.loads(_adopt(plane, "--yes", "-o", "json").stdout)
    assert done["complete"], done
    assert {step["outcome"] for step in done["steps"]} == {"done"}
    _check_taken_over(nodes)
    assert _containers(plane, "a", "b") == containers
    _new_pod_is_held(nodes)
    assert _containers(plane, "a", "b") == containers  # the watch ended nobody without a fence

    assert "all is as it was before" in _adopt(plane, "--undo", "--yes").stdout
    assert _containers(plane, "a", "b") == containers
    _hold(nodes, "d", 4)  # gpushare serves again, beside what Partage started
    for name in ("c", "d"):
        plane.client.delete("Pod", name, grace_seconds=0)
    making.eventually(lambda: _inventory(plane) == before, why=lambda: _difference(plane, before))


def _install(nodes: Nodes) -> None:
    """gpushare, and kube-scheduler with the configuration that it ships."""
    plane = nodes[0].plane
    script = {"gpushare_stand_in.py": STAND_IN.read_text()}
    plane.client.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "stand-in", "namespace": originals.SYSTEM},
            "data": script,
        }
    )
    for made in originals.gpushare(image=partage_image.NAME):
        if made["kind"] in ("Deployment", "DaemonSet"):
            _run_stand_in(made)
        plane.client.create(made)
    for number, real_node in enumerate(nodes):
        labels = {"gpushare": "true"}
        labels |= {} if number else {"node-role.kubernetes.io/master": ""}
        plane.client.patch("Node", real_node.name, {"metadata": {"labels": labels}}, namespace="")
    text = scheduler_config.gpushare(plane.kubeconfig, port=32766)
    plane.start_scheduler(text.replace("127.0.0.1:32766", f"{nodes[0].name}:32766"))
    making.eventually(lambda: _offered(nodes), patience_s=180, why=lambda: _pods_of_system(plane))


def _run_stand_in(workload: api.Object) -> None:
    """The program of Partage's image that plays gpushare's; with a driver, as on its nodes."""
    spec = workload["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    flags = [flag for flag in container.get("command", ()) if flag.startswith("--memory-unit")]
    role = "plugin" if workload["kind"] == "DaemonSet" else "extender"
    container |= {
        "imagePullPolicy": "Never",
        "command": [PYTHON, "/stand-in/gpushare_stand_in.py", role, *flags],
        "securityContext": {"runAsUser": 0, "runAsGroup": 0},
    }
    container["env"].append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})
    mount = {"name": "stand-in", "mountPath": "/stand-in"}
    container.setdefault("volumeMounts", []).append(mount)
    spec.setdefault("volumes", []).append({"name": "stand-in", "configMap": {"name": "stand-in"}})
    spec |= {"runtimeClassName": "nvidia", "terminationGracePeriodSeconds": 1}


def _offered(nodes: Nodes) -> bool:
    statuses = [one.plane.client.get("Node", one.name)["status"]["allocatable"] for one in nodes]
    pods = nodes[0].plane.client.list_all("Pod", originals.SYSTEM)
    return all((s.get(MEMORY), s.get(COUNT)) == ("32", "2") for s in statuses) and all(
        any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"]["conditions"])
        for p in pods
    )


def _hold(nodes: Nodes, name: str, units: int) -> str:
    """A pod that gpushare places and starts, and that holds memory of a card; where it is."""
    container = objects.container("gpu", "hold", "1000", limits={MEMORY: units})
    container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    plane = nodes[0].plane
    plane.client.create(objects.running_pod(name, container, runtimeClassName="nvidia"))
    making.eventually(
        lambda: _running(plane, name),
        patience_s=120,
        why=lambda: f"{plane.client.get('Pod', name)['status']} {making.events(plane, name)}",
    )
    written = making.written(plane.client.get("Pod", name))
    assert (written[ASSIGNED], making.GRANT in written) == ("true", False)
    return str(plane.client.get("Pod", name)["spec"]["nodeName"])


def _running(plane: ControlPlane, name: str) -> bool:
    return bool(plane.client.get("Pod", name)["status"].get("phase") == "Running")


def _adopt(plane: ControlPlane, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(_command(plane, *words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{_pods_of_system(plane)}"
    return done


def _command(plane: ControlPlane, *words: str) -> list[str]:
    where = ("--kubeconfig", str(plane.kubeconfig), "--timeout", "180")
    return [str(PARTAGE), "adopt", "gpushare", *where, *words]


def _check_plan(planned: Any, nodes: Nodes, tenants: list[str]) -> None:
    """It names what runs, what is kept, and which pods have no fence, node by node."""
    assert planned["first"] == []
    assert planned["runs"] == [
        "Deployment kube-system/gpushare-schd-extender",
        "DaemonSet kube-system/gpushare-device-plugin-ds",
    ]
    assert set(planned["runs"]) <= set(planned["kept"])
    assert "Service kube-system/gpushare-schd-extender" in planned["kept"]
    of_nodes = {one["node"]: one for one in planned["nodes"]}
    assert of_nodes.keys() == {one.name for one in nodes}
    assert {one["offers"][MEMORY] for one in planned["nodes"]} == {32}
    unfenced = {pod for one in planned["nodes"] for pod in one["without_fence"]}
    assert unfenced == {"default/a", "default/b"}
    for pod, where in zip("ab", tenants, strict=True):
        assert f"default/{pod}" in of_nodes[where]["without_fence"]


def _kill_in_the_middle(plane: ControlPlane) -> None:
    """SIGKILL while the first node is being moved."""
    words = ("--yes", "--image", partage_image.NAME)
    with subprocess.Popen(_command(plane, *words), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "the agent takes the plugin's place" in line:
                break
        else:
            pytest.fail(f"it ended before: {process.wait()}\n{_pods_of_system(plane)}")
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGKILL)


def _check_taken_over(nodes: Nodes) -> None:
    """Under the old names Partage's programs run, and every node is open and offers what it did."""
    plane = nodes[0].plane
    deployment = plane.client.get("Deployment", originals.EXTENDER, originals.SYSTEM)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["partage", "extender"]
    assert (
        "node-role.kubernetes.io/master" in deployment["spec"]["template"]["spec"]["nodeSelector"]
    )
    for real_node in nodes:
        made = plane.client.get("Node", real_node.name)
        assert not made["spec"].get("unschedulable")
        assert made["status"]["allocatable"][MEMORY] == "32"
        assert "partage.dev/cards" in made["metadata"]["annotations"]


def _new_pod_is_held(nodes: Nodes) -> None:
    """By gpushare's configuration of kube-scheduler to Partage's extender, agent and fence."""
    plane = nodes[0].plane
    plane.client.create(objects.running_pod("c", objects.container(limits={MEMORY: 2})))
    making.eventually(
        lambda: _running(plane, "c"), patience_s=120, why=lambda: str(making.events(plane, "c"))
    )
    pod = plane.client.get("Pod", "c")
    (where,) = [one for one in nodes if one.name == pod["spec"]["nodeName"]]
    assert making.grant(pod)["dialect"] == "aliyun"
    assert where.exec("c", "main", "gpu", "try", "1000").returncode == 0
    assert where.exec("c", "main", "gpu", "try", "2500").returncode != 0


def _containers(plane: ControlPlane, *names: str) -> list[tuple[str, int]]:
    """Which containers run, and how often they were started."""
    statuses = [plane.client.get("Pod", name)["status"]["containerStatuses"][0] for name in names]
    return [(status["containerID"], status["restartCount"]) for status in statuses]


def _inventory(plane: ControlPlane) -> dict[str, Any]:
    """All objects as somebody wrote them, and what is written on nodes."""
    made: dict[str, Any] = {}
    for kind in KINDS:
        for one in plane.client.list_all(kind):
            bare = written_objects.bare(one, kind=kind, version="any")
            for counter in COUNTERS:
                (bare["metadata"].get("annotations") or {}).pop(counter, None)
            made[f"{kind} {bare['metadata'].get('namespace')}/{bare['metadata']['name']}"] = bare
    for one in plane.client.list_all("Node"):
        meta = one["metadata"]
        amounts = [one["status"]["allocatable"].get(name) for name in (MEMORY, COUNT)]
        taints = one["spec"].get("taints", [])
        made[meta["name"]] = (meta["labels"], set(meta["annotations"]), taints, amounts)
    return made


def _difference(plane: ControlPlane, before: dict[str, Any]) -> str:
    now = _inventory(plane)
    names = [name for name in now.keys() | before.keys() if now.get(name) != before.get(name)]
    return "\n".join(f"{name}: {before.get(name)}\n  now {now.get(name)}" for name in names)


def _pods_of_system(plane: ControlPlane) -> str:
    """For whoever reads a failure."""
    pods = plane.client.list_all("Pod", originals.SYSTEM)
    lines = [f"{pod['metadata']['name']}: {str(pod['status'])[:900]}" for pod in pods]
    return "\n".join(lines)
