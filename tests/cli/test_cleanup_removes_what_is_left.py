"""``partage cleanup``: what is left in a cluster is listed, then it is gone, and nothing else."""

from __future__ import annotations

import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from partage.core import cards
from partage.dialects import nodes
from tests.cli import fake_cluster
from tests.kube import scripted_server

CARDS = (cards.Card(uuid="GPU-0", index=0, memory_mib=16384, model="Tesla T4"),)
APPS = "/apis/apps/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ELASTIC = "/apis/elasticgpu.io/v1alpha1"
SPACE = "/api/v1/namespaces/partage-system"
TAINT = {"key": "partage.dev/mode", "value": "shared", "effect": "NoSchedule"}
OTHERS = {"key": "other", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


class Cluster:
    """Objects by path; they are listed, read, patched and deleted as Kubernetes does it."""

    def __init__(self, server: scripted_server.Server, folder: pathlib.Path) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.changes: list[str] = []
        self._server, self._folder = server, folder
        server.respond = self._answer

    def add(self, path: str, **parts: Any) -> None:
        """An object; of all but its names there may be more."""
        meta = {
            "name": path.rpartition("/")[2],
            "resourceVersion": "7",
            **parts.pop("metadata", {}),
        }
        self.objects[path] = {"metadata": meta, **parts}

    async def run(self, *words: str) -> fake_cluster.Result:
        """`partage cleanup cluster` with these words."""
        kubeconfig = fake_cluster.kubeconfig(self._folder / "kubeconfig", self._server.url)
        environ = {"KUBECONFIG": str(kubeconfig)}
        return await fake_cluster.run("partage", "cleanup", "cluster", *words, environ=environ)

    def _answer(self, request: scripted_server.Request) -> scripted_server.Step:
        path = request.path.removesuffix("/status")
        if request.verb == "GET" and (listed := self._listed(path)) is not None:
            return scripted_server.Answer({"metadata": {}, "items": listed})
        if path not in self.objects:
            return scripted_server.refusal(404, "NotFound")
        if request.verb != "GET":
            self.changes.append(f"{request.verb} {request.path}")
        if request.verb == "DELETE":
            return scripted_server.Answer(self.objects.pop(path))
        if request.verb == "PATCH":
            merge(self.objects[path], json.loads(request.body))
        return scripted_server.Answer(self.objects[path])

    def _listed(self, path: str) -> list[Any] | None:
        """Of a namespace or, for claims, of all."""
        if path in self.objects:
            return None
        if path.startswith(ELASTIC):
            plural = path.rpartition("/")[2]
            return [o for p, o in self.objects.items() if f"/{plural}/" in p and ELASTIC in p]
        if path in (f"{APPS}/deployments", f"{APPS}/daemonsets"):
            return [o for p, o in self.objects.items() if p.startswith(f"{path}/")]
        if path.rpartition("/")[2] in {"nodes", "namespaces", "pods", "configmaps"}:
            return [
                made
                for made_at, made in self.objects.items()
                if made_at.rpartition("/")[0] == path and not made_at.endswith("-doctor")
            ]
        return None


def merge(target: dict[str, Any], change: dict[str, Any]) -> None:
    """A merge patch."""
    for name, value in change.items():
        if isinstance(value, dict):
            merge(target.setdefault(name, {}), value)
        elif value is None:
            target.pop(name, None)
        else:
            target[name] = value


@pytest_asyncio.fixture
async def cluster(tmp_path: pathlib.Path) -> AsyncIterator[Cluster]:
    """One in which Partage was, and other things are."""
    async with scripted_server.Server() as server:
        made = Cluster(server, tmp_path)
        made.add(
            "/api/v1/nodes/gpu-1",
            metadata={
                "labels": {
                    "partage.dev/agent": "enabled",
                    "partage.dev/fence": "hook",
                    "nvidia.com/gpu.product": "Tesla-T4",
                    "nvidia.com/gpu.count": "8",  # another wrote that
                    "kubernetes.io/hostname": "gpu-1",
                },
                "annotations": {
                    nodes.CARDS: nodes.encode(CARDS),
                    "partage.dev/taints": "partage.dev/mode=shared:NoSchedule",
                    "other": "x",
                },
            },
            spec={"taints": [OTHERS, TAINT]},
            status={
                "capacity": {
                    "cpu": "8",
                    "aliyun.com/gpu-count": "1",
                    "partage.dev/memory-mib": "16384",
                    "aliyun.com/gpu-mem": "0",
                    "partage.dev/cards": "256",
                },
                "allocatable": {"cpu": "8", "partage.dev/cards": "0"},
            },
        )
        made.add(
            "/api/v1/nodes/cpu-1", spec={"taints": [OTHERS]}, status={"capacity": {"cpu": "8"}}
        )
        made.add(
            "/api/v1/namespaces/lab", metadata={"annotations": {"partage.dev/most-cards": "2"}}
        )
        made.add("/api/v1/namespaces/default")
        for name in ("unhealthy-gpu-gpu-1", "unhealthy-gpu-cpu-1", "extension"):
            made.add(f"/api/v1/namespaces/kube-system/configmaps/{name}")
        for name in ("partage-extender-tls", "partage-scheduler-tls", "other"):
            made.add(f"{SPACE}/secrets/{name}")
        made.add("/apis/coordination.k8s.io/v1/namespaces/partage-system/leases/partage-extender")
        made.add(f"{SPACE}/pods/partage-doctor")  # whose labels are not those of a program
        made.add(f"{ELASTIC}/gpus/gpu-0")
        made.add(
            f"{ELASTIC}/namespaces/lab/elasticgpuclaims/mine",
            metadata={"namespace": "lab", "finalizers": ["x/y", "elasticgpu.io/egpuc-protection"]},
        )
        for kind in ("elasticgpuclaims", "elasticgpuclasses", "elasticgpus", "gpus"):
            made.add(f"{CRDS}/{kind}.elasticgpu.io")
        yield made


async def test_all_is_listed_and_nothing_is_changed(cluster: Cluster) -> None:
    """With what stays for now, and why."""
    result = await cluster.run()
    assert result.code == 1, result
    rows = [" ".join(line.split()) for line in result.out.splitlines()]
    assert (
        "label partage.dev/agent, label partage.dev/fence, annotation partage.dev/cards" in rows[1]
    )
    assert "label nvidia.com/gpu.product" in rows[1]
    assert "gpu.count" not in rows[1]
    assert "taint partage.dev/mode=shared:NoSchedule left" in rows[1]
    counted = "node gpu-1 resource partage.dev/cards kept: the kubelet counts on the agent for five"
    assert any(row.startswith(counted) for row in rows)
    names = ("aliyun.com/gpu-count", "aliyun.com/gpu-mem", "partage.dev/memory-mib")
    resources = ", ".join(f"resource {name}" for name in names)
    for row in (
        f"node gpu-1 {resources} left",
        "namespace lab annotation partage.dev/most-cards left",
        "ConfigMap kube-system/unhealthy-gpu-gpu-1 - left",
        "Secret partage-system/partage-scheduler-tls - left",
        "Lease partage-system/partage-extender - left",
        "Pod partage-system/partage-doctor - left",
        "GPU gpu-0 - left",
        "elasticgpuclaims lab/mine finalizer elasticgpu.io/egpuc-protection left",
    ):
        assert row in rows
    assert len([row for row in rows if "--definitions removes both" in row]) == 4
    assert cluster.changes == []


async def test_it_is_removed_and_all_else_stays(cluster: Cluster) -> None:
    """What others wrote on the same objects, and the objects of others."""
    result = await cluster.run("--remove")
    assert result.code == 0, result
    node = cluster.objects["/api/v1/nodes/gpu-1"]
    assert node["metadata"]["labels"] == {
        "nvidia.com/gpu.count": "8",
        "kubernetes.io/hostname": "gpu-1",
    }
    assert node["metadata"]["annotations"] == {"other": "x"}
    assert node["spec"]["taints"] == [OTHERS]
    assert node["status"]["capacity"] == {"cpu": "8", "partage.dev/cards": "256"}
    claim = cluster.objects[f"{ELASTIC}/namespaces/lab/elasticgpuclaims/mine"]
    assert claim["metadata"]["finalizers"] == ["x/y"]
    names = {path.rpartition("/")[2] for path in cluster.objects}
    assert {"unhealthy-gpu-cpu-1", "extension", "other", "gpus.elasticgpu.io"} <= names
    assert not {"unhealthy-gpu-gpu-1", "partage-extender-tls", "partage-doctor", "gpu-0"} & names

    cluster.changes.clear()
    again = await cluster.run("-o", "json")
    left = json.loads(again.out)["leftovers"]
    assert again.code == 0
    assert {row["state"].split(":")[0] for row in left} == {"kept"}
    assert left[0]["object"] == "node gpu-1"


async def test_resources_of_which_the_kubelet_knows_nothing_any_more(cluster: Cluster) -> None:
    """Minutes later they are 0, and nothing else would ever take them away."""
    await cluster.run("--remove")
    node = cluster.objects["/api/v1/nodes/gpu-1"]
    node["status"]["capacity"]["partage.dev/cards"] = "0"
    assert (await cluster.run("--remove", "--definitions")).code == 0
    assert node["status"]["capacity"] == {"cpu": "8"}
    assert not any(path.startswith(CRDS) for path in cluster.objects)
    result = await cluster.run()
    assert (result.code, result.out, result.err) == (0, "", "nothing of Partage is left\n")


async def test_the_way_back_from_a_take_over_is_kept(cluster: Cluster) -> None:
    """It is told, and no reason for another exit code."""
    cluster.objects.clear()
    cluster.add("/api/v1/namespaces/kube-system/secrets/partage-adopted-hami")
    result = await cluster.run("--remove")
    assert (result.code, cluster.changes) == (0, [])
    assert "Secret kube-system/partage-adopted-hami" in result.out
    assert "'partage adopt hami --undo' goes back by it" in result.out


async def test_programs_that_run_would_write_it_again(cluster: Cluster) -> None:
    """So nothing is removed before they have ended."""
    cluster.add(f"{SPACE}/pods/partage-agent-x")
    result = await cluster.run("--remove")
    assert result.code == 1
    assert "Partage is installed in namespace partage-system: pod partage-agent-x" in result.err
    assert "helm uninstall partage --namespace partage-system" in result.err
    assert cluster.changes == []


async def test_an_installation_in_another_namespace_keeps_its_labels(cluster: Cluster) -> None:
    """A slip in --namespace must not take the nodes away from agents that serve them."""
    container = {"name": "agent", "image": "x", "args": ["partage", "agent"]}
    cluster.add(
        f"{APPS}/daemonsets/sharing",
        metadata={"namespace": "kube-system"},
        spec={"template": {"spec": {"containers": [container]}}},
    )
    result = await cluster.run("--remove")
    assert result.code == 1
    assert "Partage is installed: DaemonSet kube-system/sharing would write" in result.err
    assert cluster.changes == []


@pytest.mark.parametrize("words", [("--namespace", "../x"), ("--name", ""), ("--after", "a/b")])
async def test_names_that_there_cannot_be(cluster: Cluster, words: tuple[str, str]) -> None:
    """They would be parts of paths of what is deleted."""
    result = await cluster.run("--remove", *words)
    assert (result.code, cluster.changes) == (2, []), result
    assert "is not a name that Kubernetes allows" in result.err


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"desiredNumberScheduled": 2, "numberReady": 2}, "files were removed on 2 nodes"),
        ({"desiredNumberScheduled": 2, "numberReady": 1}, "1 node did not answer, and files stay"),
        (None, "there is no DaemonSet tidy; files on nodes are left alone"),
    ],
)
async def test_nodes_come_first(cluster: Cluster, status: dict[str, int] | None, said: str) -> None:
    """Their labels say where an agent was."""
    if status is not None:
        path = "/apis/apps/v1/namespaces/partage-system/daemonsets/tidy"
        cluster.add(path, status=status)
    result = await cluster.run("--remove", "--after", "tidy")
    assert (result.code, said in result.err) == (0, True), result
