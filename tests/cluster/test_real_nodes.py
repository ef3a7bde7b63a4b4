"""Real nodes run containers, see their simulated cards, and leave nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import api, child_processes, objects
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.node.node import Node, NoSuchContainer
from tests.cluster import whole_cards

MIB_OF_CARD = 16 * 1024
Nodes = tuple[Node, Node]

# What the kubelet would like to change for the whole machine.
SYSCTLS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")


def until(holds: Callable[[], Any], what: str = "") -> Any:
    """Wait for something that is true sooner or later; its value."""
    deadline = time.monotonic() + 60
    while not (value := holds()):
        assert time.monotonic() < deadline, what or "it does not come true"
        time.sleep(0.05)
    return value


def run(node: Node, pod: api.Object) -> api.Object:
    """Create a pod on the node and wait until it runs; its status then."""
    client = node.plane.client
    name = pod["metadata"]["name"]
    client.create(pod)

    def status() -> api.Object:
        status_now: api.Object = client.get("Pod", name)["status"]
        return status_now

    until(lambda: status()["phase"] == "Running", f"{name} does not run: {status()}")
    return status()


def said(node: Node, pod: str, *command: str) -> str:
    """What a command in the container prints; it has to end well."""
    done = node.exec(pod, "main", *command)
    assert done.returncode == 0, done
    return done.stdout


def cards_seen(node: Node, pod: str) -> list[str]:
    """The cards that a CUDA program in the container sees, as UUID, free and total MiB."""
    return said(node, pod, "gpu", "info").splitlines()


def left_of(node: Node) -> dict[str, list[str]]:
    """What of a node is to be seen on the machine: processes, mounts, cgroups."""
    folder = str(node.folder)
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    traces = {
        "processes": [line for line in command_lines() if folder in line],
        "mounts": [line for line in mounts if folder in line],
        "cgroups": list(_folders("/sys/fs/cgroup", node.cgroup)),
    }
    return {kind: lines for kind, lines in traces.items() if lines}


def _folders(top: str, name: str) -> Iterator[str]:
    """Those of that name, however deep; others may come and go meanwhile, which a walk ignores."""
    return (f"{folder}/{name}" for folder, inner, _ in os.walk(top) if name in inner)


def command_lines() -> list[str]:
    """Of all processes but this one."""
    pids = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()}
    return [child_processes.command_line(pid) for pid in pids - {os.getpid()}]


def test_pods_run_on_both_nodes(clean_nodes: Nodes) -> None:
    """Each with its own network and its own processes, and with what its node's kubelet says."""
    for node in clean_nodes:
        assert node.is_ready()
        name = f"on-{node.name}"
        status = run(node, objects.running_pod(name, node_name=node.name))
        assert status["hostIP"] == node.name
        assert said(node, name, "sh", "-c", "id -u; cat /proc/net/dev | grep -c :").split() == [
            "0",
            "1",
        ]
        assert "sleep infinity" in said(node, name, "ps", "ax")


def test_the_scheduler_and_a_deployment_reach_real_nodes(clean_nodes: Nodes) -> None:
    """What is made by a controller is placed, started, and restarted when it ends."""
    plane = clean_nodes[0].plane
    plane.start_scheduler(scheduler_config.plain(plane.kubeconfig))
    labels = {"app": "dies-once"}
    body = objects.running_pod("", objects.container("sh", "-c", "sleep 1; exit 3"))
    made = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "dies-once", "namespace": api.DEFAULT},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": body["spec"]},
        },
    }
    plane.client.create(made)
    try:
        until(lambda: _restarts(plane, "app=dies-once") >= 2)
    finally:
        plane.client.delete("Deployment", "dies-once")
        plane.stop_scheduler()


def _restarts(plane: ControlPlane, selector: str) -> int:
    pods = plane.client.list_all("Pod", selector=selector)
    statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", [])]
    return sum(status["restartCount"] for status in statuses)


def test_exec_and_logs_tell_what_a_container_says(clean_nodes: Nodes) -> None:
    """Output, errors and the exit code, and what was written before."""
    node = clean_nodes[0]
    speaking = objects.container("sh", "-c", "echo out; echo err >&2; exec sleep infinity")
    run(node, objects.running_pod("speaks", speaking, node_name=node.name))
    done = node.exec("speaks", "main", "sh", "-c", "echo here; echo there >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "here\n", "there\n")
    assert sorted(until(lambda: node.logs("speaks", "main")).split()) == ["err", "out"]
    with pytest.raises(NoSuchContainer, match="speaks has no container other"):
        node.exec("speaks", "other", "true")


def test_the_api_server_reaches_a_container_through_the_kubelet(
    clean_nodes: Nodes, programs: Path
) -> None:
    """``kubectl exec`` and ``kubectl logs`` work as everywhere."""
    node = clean_nodes[0]
    speaking = objects.container("sh", "-c", "echo out; exec sleep infinity")
    run(node, objects.running_pod("reached", speaking, node_name=node.name))
    kubectl: list[str | Path] = [programs / "kubectl", f"--kubeconfig={node.plane.kubeconfig}"]
    for command, expected in (
        (["logs", "reached"], "out\n"),
        (["exec", "reached", "--", "sh", "-c", "echo $$ >/tmp/it; echo in"], "in\n"),
    ):
        done = subprocess.run(
            [*kubectl, *command], capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.stdout, done.returncode) == (expected, 0), done.stderr


def test_a_container_sees_the_cards_it_was_given_alone(clean_nodes: Nodes) -> None:
    """By the node's CDI specification; another without cards has no driver at all."""
    node = clean_nodes[0]
    assert node.cards is not None
    uuid_given = node.cards.uuids[1]
    with whole_cards.WholeCards(node, [uuid_given]):
        one = objects.container(limits={whole_cards.RESOURCE: 1})
        until(lambda: _allocatable(node) == "1")
        run(node, objects.running_pod("one-card", one, node_name=node.name))
    run(node, objects.running_pod("no-card", node_name=node.name))
    [seen] = cards_seen(node, "one-card")
    uuid, free_mib, total_mib = seen.split()
    assert (uuid, int(total_mib)) == (uuid_given, MIB_OF_CARD)
    assert 0 < int(free_mib) < MIB_OF_CARD
    assert said(node, "one-card", "nvidia-smi", "-L").count("UUID") == 1
    devices = said(node, "one-card", "sh", "-c", "ls /dev | grep nvidia").split()
    assert devices == ["nvidia1", "nvidiactl"]
    assert node.exec("no-card", "main", "gpu", "info").returncode == 127


def _allocatable(node: Node) -> str:
    status = node.plane.client.get("Node", node.name)["status"]
    return str(status["allocatable"].get(whole_cards.RESOURCE))


def test_containers_of_a_node_share_its_cards_and_no_others(clean_nodes: Nodes) -> None:
    """What one holds the other cannot have, and programs of the node see both; other nodes not."""
    first, second = clean_nodes
    for node in clean_nodes:
        assert node.cards is not None
        with whole_cards.WholeCards(node, ["all"]):
            everything = objects.container(limits={whole_cards.RESOURCE: 1})
            until(lambda: _allocatable(node) == "1")  # noqa: B023 (called at once)
            name = f"has-{node.name}"
            run(node, objects.running_pod(name, everything, node_name=node.name))
            seen = [line.split()[0] for line in cards_seen(node, name)]
            assert seen == node.cards.uuids
    assert not {*_uuids(first)} & {*_uuids(second)}
    assert first.exec("has-127.0.0.1", "main", "gpu", "try", "12000").stdout == "held\n"
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, "12000"],
        env={**os.environ, **first.environment},
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        refused = first.exec("has-127.0.0.1", "main", "gpu", "try", "12000")
        assert (refused.stdout, refused.returncode) == ("CUDA_ERROR_OUT_OF_MEMORY\n", 1)
        assert second.exec("has-127.0.0.2", "main", "gpu", "try", "12000").stdout == "held\n"
        holder.kill()
    assert first.exec("has-127.0.0.1", "main", "gpu", "spin", "0.1").returncode == 0


# A program of the node, outside containers.
_HOLD = """
import ctypes, signal, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
results = [
    cuda.cuInit(0),
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
    cuda.cuCtxSetCurrent(context),
    cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(int(sys.argv[1]) << 20)),
]
print("held" if not any(results) else results, flush=True)
signal.pause()
"""


def _uuids(node: Node) -> list[str]:
    assert node.cards is not None
    return node.cards.uuids


def test_a_container_lives_on_without_kubelet_and_containerd(clean_nodes: Nodes) -> None:
    """It is the same process before, meanwhile and after, and then can be talked to again."""
    node = clean_nodes[0]
    beating = objects.container("sh", "-c", "while :; do date +%s.%N > /beat; sleep 0.1; done")
    before = run(node, objects.running_pod("stays", beating, node_name=node.name))
    node.kill_kubelet()
    node.kill_containerd()
    node.start_containerd()
    beat = said(node, "stays", "cat", "/beat")
    until(lambda: said(node, "stays", "cat", "/beat") != beat)
    node.start_kubelet()
    run(node, objects.running_pod("later", node_name=node.name))
    after = node.plane.client.get("Pod", "stays")["status"]
    assert after["containerStatuses"] == before["containerStatuses"]


def test_a_pod_whose_shim_is_killed_is_started_again(clean_nodes: Nodes) -> None:
    """As after any other crash; others do not notice."""
    node = clean_nodes[0]
    run(node, objects.running_pod("hit", node_name=node.name))
    run(node, objects.running_pod("missed", node_name=node.name))
    node.kill_shim("hit")
    until(lambda: _restarts_of(node, "hit") >= 1)
    assert _restarts_of(node, "missed") == 0


def _restarts_of(node: Node, pod: str) -> int:
    [status] = node.plane.client.get("Pod", pod)["status"]["containerStatuses"]
    return int(status["restartCount"])


def test_a_stopped_node_leaves_nothing(nodes: Nodes, tmp_path: Path) -> None:
    """No process, no mount, no cgroup, no setting of the machine; then it can be started again."""
    settings = [Path("/proc/sys", name).read_text() for name in SYSCTLS]
    third = Node(nodes[0].plane, tmp_path, 3, cards="")
    for name in ("once", "again"):
        third.start()
        try:
            run(third, objects.running_pod(name, node_name=third.name))
            assert left_of(third).keys() == {"processes", "cgroups"}  # mounts are the node's alone
        finally:
            third.stop()
            third.plane.client.delete("Pod", name, grace_seconds=0)
        assert left_of(third) == {}
    third.plane.client.delete("Node", third.name)
    assert [Path("/proc/sys", name).read_text() for name in SYSCTLS] == settings


def test_a_node_dies_with_the_process_that_started_it(nodes: Nodes, tmp_path: Path) -> None:
    """With -9, too: containers, mounts and cgroups are gone a moment later."""
    node = Node(nodes[0].plane, tmp_path / "node", 4)
    with subprocess.Popen(
        [sys.executable, "-c", _START, tmp_path],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as starter:
        assert starter.stdout is not None
        containers = starter.stdout.readline().split()
        assert len(containers) == 2  # with its sandbox
        inside = _processes_in(node.cgroup)
        assert inside
        starter.kill()
    until(lambda: left_of(node) == {})
    assert not [pid for pid in inside if child_processes.runs(pid)]


def _processes_in(cgroup: str) -> list[int]:
    """Those of containers; on a machine with one hierarchy or with several."""
    groups = Path("/sys/fs/cgroup").glob(f"**/{cgroup}/**/cgroup.procs")
    return [int(pid) for group in groups for pid in group.read_text().split()]


# A control plane and a node, with a pod that runs; prints the IDs of its containers.
_START = """
import pathlib, signal, sys, time
from cluster import objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.node.node import Node

folder = pathlib.Path(sys.argv[1])
node = Node(ControlPlane(folder / "plane").start(), folder / "node", 4, cards="")
node.start()
node.plane.client.create(objects.running_pod("doomed", node_name=node.name))
while node.plane.client.get("Pod", "doomed")["status"]["phase"] != "Running":
    time.sleep(0.1)
print(*node.containers(), flush=True)
signal.pause()
"""
