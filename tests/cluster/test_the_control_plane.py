"""The control plane does what other tests rely on, and its programs are built safely."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

import pytest

from cluster import api, child_processes, objects, pod_phases
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import APISERVER, ETCD, ControlPlane
from cluster.programs import kubernetes_build, kubernetes_versions

GONE = 410
CONFLICT = 409
CHECKOUT = Path(__file__).parents[2]

# A parent that starts a control plane from a thread that ends at once, as coroutines' threads do.
# What the kernel does when a thread ends it has done when the thread is not listed any more.
PARENT = """
import pathlib, signal, sys, threading, time
from cluster.control_plane import control_plane
plane = control_plane.ControlPlane(pathlib.Path(sys.argv[1]))
starting = threading.Thread(target=plane.start)
starting.start()
starting.join()
while pathlib.Path(f"/proc/self/task/{starting.native_id}").exists():
    time.sleep(0.01)
assert plane.client.is_ready()
print(*plane.pids().values(), flush=True)
signal.pause()
"""

# Go as far as the build can tell. The folder to build into is the last argument but one.
GO = """#!/bin/sh
case $1 in
env) echo go1.26.8 ;;
list) echo some/package ;;
build)
    echo x >>HERE/builds
    if [ -e HERE/fail ]; then echo "undefined: nonsense" >&2; exit 1; fi
    while [ $# -gt 2 ]; do shift; done
    for name in $(/bin/sed -n '/^tool (/,/^)/ {s,/v3$,,; s,.*/,,p}' go.mod); do : >"$1$name"; done
    while [ -e HERE/hold ]; do /bin/sleep 0.01; done ;;
esac
"""


def test_nodes_keep_the_status_they_are_created_with(clean_cluster: ControlPlane) -> None:
    """A node object can be made in one call, and nothing taints it."""
    clean_cluster.client.create(objects.node("n", cards=2, resources={"example.com/x": 7}))
    node = clean_cluster.client.get("Node", "n")
    assert node["status"]["capacity"]["aliyun.com/gpu-mem"] == "32"
    assert node["status"]["allocatable"]["aliyun.com/gpu-count"] == "2"
    assert node["status"]["capacity"]["example.com/x"] == "7"
    assert "taints" not in node["spec"]


def test_a_pod_lives_as_the_fake_kubelet_says(clean_cluster: ControlPlane) -> None:
    """A bound pod runs, waits for its kubelet when deleted, and is then gone."""
    client = clean_cluster.client
    client.create(objects.node("n"))
    client.create(objects.pod("p", {"aliyun.com/gpu-mem": 3}, node_name="n"))
    assert pod_phases.run(client, "p")["status"]["phase"] == "Running"
    client.delete("Pod", "p")
    assert "deletionTimestamp" in client.get("Pod", "p")["metadata"]
    pod_phases.finish_deletion(client, "p")
    assert client.list_all("Pod") == []


def test_a_pod_can_end_well_or_badly(clean_cluster: ControlPlane) -> None:
    """Both ends can be told, with the containers' exit codes."""
    client = clean_cluster.client
    client.create_all(objects.pod(name, node_name="n") for name in ("good", "bad"))
    assert pod_phases.succeed(client, "good")["status"]["phase"] == "Succeeded"
    failed = pod_phases.fail(client, "bad")["status"]
    assert failed["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1


def test_clearing_leaves_nothing(clean_cluster: ControlPlane) -> None:
    """Bound pods, other namespaces and finalizers do not survive."""
    client = clean_cluster.client
    client.create_all(objects.nodes(3))
    held = objects.pod("held", node_name="node-1", namespace="kube-system")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    client.create_all([objects.pod("p", node_name="node-2"), held])
    client.clear()
    assert client.list_all("Pod") == client.list_all("Node") == []


@pytest.mark.parametrize("crash", [False, True])
def test_the_api_server_comes_back(clean_cluster: ControlPlane, crash: bool) -> None:
    """After a stop and after a crash, at the same address and with the same objects."""
    server = clean_cluster.server
    clean_cluster.client.create(objects.node("n"))
    (clean_cluster.kill_apiserver if crash else clean_cluster.stop_apiserver)()
    assert not clean_cluster.client.is_ready()
    clean_cluster.start_apiserver()
    assert clean_cluster.server == server
    assert [n["metadata"]["name"] for n in clean_cluster.client.list_all("Node")] == ["n"]


def test_compaction_ends_watches_from_the_past(clean_cluster: ControlPlane) -> None:
    """A watch from an old resource version is told that it is gone; before, it was served."""
    client = clean_cluster.client
    old = client.create(objects.node("n"))["metadata"]["resourceVersion"]
    client.create(objects.node("m"))
    assert [e["type"] for e in client.events_since("Node", old)] == ["ADDED"]
    clean_cluster.compact_etcd()
    (answer,) = client.events_since("Node", old)
    assert (answer["type"], answer["object"]["code"]) == ("ERROR", GONE)


def test_the_scheduler_binds_by_gpu_memory(clean_cluster: ControlPlane) -> None:
    """A pod goes where its limit fits, and one that fits nowhere waits."""
    client = clean_cluster.client
    client.create(objects.node("small", cards=1, card_units=8))
    client.create(objects.node("large", cards=1, card_units=16))
    clean_cluster.start_scheduler()
    client.create(objects.pod("p", {"aliyun.com/gpu-mem": 12}))
    client.create(objects.pod("q", {"aliyun.com/gpu-mem": 12}))
    eventually(lambda: len(bound(client)) == 1)
    assert set(bound(client).values()) == {"large"}


@pytest.mark.parametrize("family", ["gpushare", "partage"])
def test_an_extender_that_is_down_holds_its_own_pods_only(
    clean_cluster: ControlPlane, family: str
) -> None:
    """The scheduler takes both configurations, and asks at the address given."""
    client, kubeconfig, port = (
        clean_cluster.client,
        clean_cluster.kubeconfig,
        child_processes.Port(),
    )
    configurations = {
        "gpushare": scheduler_config.gpushare(kubeconfig, port=port.number),
        "partage": scheduler_config.partage(
            kubeconfig, port=port.number, advertised=[objects.MEMORY], second_name="second"
        ),
    }
    client.create(objects.node("n"))
    clean_cluster.start_scheduler(configurations[family])
    client.create(objects.pod("shares", {objects.MEMORY: 1}))
    client.create(objects.pod("plain"))
    eventually(lambda: f"127.0.0.1:{port.number}" in why_waiting(client, "shares"))
    eventually(lambda: bound(client) == {"plain": "n"})
    port.release()


def test_two_control_planes_stand_side_by_side(clean_cluster: ControlPlane, tmp_path: Path) -> None:
    """Each has its own ports and objects, and its own credentials."""
    with ControlPlane(tmp_path) as other:
        other.client.create(objects.node("only-there"))
        assert clean_cluster.client.list_all("Node") == []
        assert other.server != clean_cluster.server
        assert other.kubeconfig.read_text() != clean_cluster.kubeconfig.read_text()


def test_a_controller_manager_makes_deployments_work(tmp_path: Path, programs: Path) -> None:
    """Deployments become pods with a service account, and nodes without kubelet stay untainted."""
    with ControlPlane(tmp_path, controllers=True) as plane:
        plane.start_scheduler()
        plane.client.create(objects.node("n"))
        plane.client.create(deployment(replicas=2))
        eventually(lambda: len(bound(plane.client)) == 2)
        assert plane.client.list_all("Pod")[0]["spec"]["serviceAccountName"] == "default"
        assert "taints" not in plane.client.get("Node", "n")["spec"]


def test_nothing_outlives_a_killed_parent(tmp_path: Path, programs: Path) -> None:
    """Even kill -9 of the parent ends every program, and a thread's end ends none."""
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(child_processes.runs(pid) for pid in pids)
        parent.send_signal(signal.SIGKILL)
    eventually(lambda: not any(child_processes.runs(pid) for pid in pids))


def test_a_program_that_fails_says_why(tmp_path: Path, programs: Path) -> None:
    """The error names the program and ends with its own words; nothing is left running."""
    plane = ControlPlane(tmp_path, apiserver_options=["--no-such-flag"])
    with pytest.raises(child_processes.ProgramFailed, match=r"apiserver ended(.|\n)*no-such-flag"):
        plane.start()
    assert plane.pids() == {}


def test_errors_of_the_api_server_are_told(clean_cluster: ControlPlane) -> None:
    """A refused call carries the status and the words of the API server."""
    clean_cluster.client.create(objects.node("n"))
    with pytest.raises(api.ApiError, match='"n" already exists') as raised:
        clean_cluster.client.create(objects.node("n"))
    assert raised.value.status == CONFLICT
    assert {ETCD, APISERVER} == set(clean_cluster.pids())


def test_without_go_the_error_says_what_to_install(tmp_path: Path, fake_go: Path) -> None:
    """No Go and an old Go are told apart, and both say which version is needed."""
    (fake_go / "go").write_text("#!/bin/sh\necho go1.19.8\n")
    with pytest.raises(
        kubernetes_build.CannotBuild, match=r"version 1\.19\.8.*Go 1\.26\.8 or newer"
    ):
        kubernetes_build.ensure()
    (fake_go / "go").unlink()
    with pytest.raises(kubernetes_build.CannotBuild, match=r"no go command.*Go 1\.26\.8 or newer"):
        kubernetes_build.ensure()


def test_a_failed_build_leaves_nothing_that_looks_finished(fake_go: Path) -> None:
    """The error has the compiler's words; the next build starts afresh and succeeds."""
    (fake_go / "fail").touch()
    with pytest.raises(kubernetes_build.CannotBuild, match="undefined: nonsense"):
        kubernetes_build.ensure()
    assert not kubernetes_build.programs_folder().exists()
    (fake_go / "fail").unlink()
    (kubernetes_build.programs_folder().parent / "unfinished-of-a-killed-build").mkdir()
    built = kubernetes_build.ensure()
    assert sorted(path.name for path in built.iterdir()) == sorted(kubernetes_build.PROGRAMS)
    assert {path.name for path in built.parent.iterdir()} == {built.name, "lock"}


def test_of_two_builds_at_once_one_waits(fake_go: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second finds what the first has made."""
    (fake_go / "hold").touch()
    with futures.ThreadPoolExecutor(2) as pool:
        builds = [pool.submit(kubernetes_build.ensure) for _ in range(2)]
        try:
            eventually(lambda: "another build is running" in capsys.readouterr().err)
        finally:
            (fake_go / "hold").unlink()
    assert builds[0].result() == builds[1].result()
    assert (fake_go / "builds").read_text() == "x\n"


def test_an_older_kubernetes_stands_beside_the_newest(
    fake_go: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has programs of its own, and those that are not of Kubernetes from the newest."""
    newest = kubernetes_build.ensure()
    monkeypatch.setenv(kubernetes_versions.VARIABLE, kubernetes_versions.OLDEST)
    older = kubernetes_build.ensure()
    assert {path.name for path in older.iterdir()} == {*kubernetes_build.PROGRAMS, "kube-proxy"}
    assert (older / "etcd").samefile(newest / "etcd")
    assert not (older / "kubelet").samefile(newest / "kubelet")
    assert kubernetes_build.ensure_kube_proxy() == older / "kube-proxy"
    assert (fake_go / "builds").read_text() == "x\n" * 2


def test_the_chosen_kubernetes_is_the_one_of_its_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its minor version; another one is refused with those that there are."""
    monkeypatch.delenv(kubernetes_versions.VARIABLE, raising=False)
    newest = kubernetes_build.version()
    for name in kubernetes_versions.older():
        monkeypatch.setenv(kubernetes_versions.VARIABLE, name)
        assert kubernetes_build.version().startswith(f"v{name}.")
        assert kubernetes_build.version() != newest
    monkeypatch.setenv(kubernetes_versions.VARIABLE, "1.19")
    with pytest.raises(kubernetes_build.CannotBuild, match=r"PARTAGE_KUBERNETES=1\.19.*one of 1\."):
        kubernetes_build.version()


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, with a go that is quick, and a cache of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "go").write_text(GO.replace("HERE", str(folder)))
    (folder / "go").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv(kubernetes_versions.VARIABLE, raising=False)
    monkeypatch.setenv("PARTAGE_CACHE", str(tmp_path / "cache"))
    return folder


def bound(client: api.Api) -> dict[str, str]:
    """Pods that are bound, with their nodes."""
    pods = client.list_all("Pod")
    return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods if "nodeName" in p["spec"]}


def why_waiting(client: api.Api, pod: str) -> str:
    """What the scheduler wrote on a pod."""
    conditions = client.get("Pod", pod)["status"].get("conditions", [])
    return " ".join(condition.get("message", "") for condition in conditions)


def eventually(holds: Callable[[], bool], *, within_seconds: float = 30) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within_seconds
    while not holds():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def deployment(replicas: int) -> api.Object:
    """A deployment of pods that ask for a little."""
    pod = objects.pod("unnamed", {"aliyun.com/gpu-mem": 1}, labels={"app": "a"})
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": pod["spec"]},
        },
    }


def test_a_long_list_comes_in_parts_of_one_moment(clean_cluster: ControlPlane) -> None:
    """Each object is there once, also one that is deleted while the rest is still to come."""
    clean_cluster.client.create_all(objects.pod(f"p{number}") for number in range(600))
    pods = clean_cluster.client.each("Pod")
    names = [next(pods)["metadata"]["name"]]
    clean_cluster.client.delete("Pod", "p99", grace_seconds=0)
    names += [pod["metadata"]["name"] for pod in pods]
    assert sorted(names) == sorted(f"p{number}" for number in range(600))
