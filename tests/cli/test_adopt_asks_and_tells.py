"""``partage adopt`` shows its plan, and says why it does not begin."""

from __future__ import annotations

import base64
import gzip
import json
import pathlib
from typing import Any

import pytest

from tests.cli import fake_cluster
from tests.cluster import originals

APPS = "/apis/apps/v1"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SECRETS = "/api/v1/secrets"
IMAGE = ("--image", "registry.example/partage:0.1.0")


@pytest.fixture
def adopting(cluster: fake_cluster.Cluster) -> fake_cluster.Cluster:
    """A cluster with nothing that could be taken over."""
    services = f"/api/v1/namespaces/{originals.SYSTEM}/services"
    for path in (f"{APPS}/deployments", f"{APPS}/daemonsets", WEBHOOKS, SECRETS, services):
        cluster.objects[path] = []
    return cluster


def _install(cluster: fake_cluster.Cluster, made: list[dict[str, Any]]) -> None:
    """The system's objects, one node with its plugin, and a pod that it placed."""
    paths = {"Deployment": f"{APPS}/deployments", "DaemonSet": f"{APPS}/daemonsets"}
    for one in made:
        if one["kind"] in paths:
            cluster.objects[paths[one["kind"]]].append(one)
    cluster.objects[fake_cluster.NODES] = [fake_cluster.node("g1", memory=32, count=2)]
    (plugin,) = cluster.objects[paths["DaemonSet"]]
    owner = {"kind": "DaemonSet", "name": plugin["metadata"]["name"], "controller": True}
    meta = {"namespace": originals.SYSTEM, "uid": "u1", "ownerReferences": [owner]}
    ready = [{"type": "Ready", "status": "True"}]
    written = {"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_POD": "3"}
    limits = {"limits": {"aliyun.com/gpu-mem": "3"}}
    cluster.objects[fake_cluster.PODS] = [
        {
            "metadata": {"name": "plugin", **meta},
            "spec": {"nodeName": "g1"},
            "status": {"conditions": ready},
        },
        {
            "metadata": {"name": "a", "namespace": "d", "uid": "u2", "annotations": written},
            "spec": {"nodeName": "g1", "containers": [{"name": "main", "resources": limits}]},
            "status": {"phase": "Running"},
        },
    ]


async def _adopt(
    cluster: fake_cluster.Cluster, folder: pathlib.Path, *words: str
) -> fake_cluster.Result:
    return await cluster.run("partage", "adopt", *words, folder=folder)


async def test_the_plan_for_people(adopting: fake_cluster.Cluster, tmp_path: pathlib.Path) -> None:
    """What runs, who has no fence, which names stay, and the calls, checks and ways back."""
    _install(adopting, originals.gpushare())
    result = await _adopt(adopting, tmp_path, "gpushare", *IMAGE, "--dry-run")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[0] == "To take over from gpushare"
    assert "  Deployment kube-system/gpushare-schd-extender" in lines
    assert "g1    aliyun.com/gpu-count: 2, aliyun.com/gpu-mem: 32  1     d/a" in lines
    path = f"{APPS}/namespaces/kube-system/deployments/gpushare-schd-extender"
    assert f"       PUT {path}" in lines
    assert "     back:  gpushare's extender runs again, and is ready" in lines


async def test_the_plan_for_programs(
    adopting: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """The same in JSON, with what has to come before."""
    _install(adopting, originals.hami())
    result = await _adopt(adopting, tmp_path, "hami", "--dry-run", "-o", "json")
    assert result.code == 0, result.err
    page = json.loads(result.out)
    assert (page["kind"], page["system"]) == ("AdoptionPlan", "hami")
    assert [step["name"] for step in page["steps"]] == ["device-plugin", "node g1", "scheduler"]
    assert page["first"][0].startswith("Partage is not installed: helm install partage")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("gpushare", "--undo"), "nothing is known of a take-over from gpushare"),
        (("gpushare", "--undo", "--dry-run"), "leave the other options out"),
        (("gpushare", *IMAGE), "no gpushare runs here"),
        (("gpushare",), "--image is needed"),
        (("nvidia",), "one DaemonSet of NVIDIA's device plugin can be taken over"),
        (("hami", *IMAGE), "--image is for gpushare"),
        (("hami", "--context", "other"), "there is no context 'other'"),
    ],
)
async def test_why_it_does_not_begin(
    adopting: fake_cluster.Cluster, tmp_path: pathlib.Path, words: tuple[str, ...], text: str
) -> None:
    """One line that says it, and exit code 2."""
    result = await _adopt(adopting, tmp_path, *words, "--yes")
    assert (result.code, result.out) == (2, ""), result.err
    assert text in result.err
    assert len(result.err.splitlines()) == 1


async def test_nothing_is_changed_while_something_has_to_come_before(
    adopting: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """The plan is shown, and then what is missing."""
    _install(adopting, originals.hami())
    result = await _adopt(adopting, tmp_path, "hami", "--yes")
    assert result.code == 2
    assert "Before this can begin" in result.out
    assert "it cannot begin: Partage is not installed" in result.err
    assert "nothing was changed" in result.err


async def test_a_record_that_a_user_made_is_not_believed(
    adopting: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """What is in it would be written with an administrator's rights."""
    forged = _secret("lab", gzip.compress(b'{"version":1}'))
    adopting.objects[SECRETS] = [forged]
    adopting.objects["/api/v1/namespaces/lab/secrets"] = [forged]
    result = await _adopt(adopting, tmp_path, "gpushare", "--undo", "--yes")
    assert result.code == 2
    assert "there is no Secret kube-system/partage-adopted-gpushare" in result.err


@pytest.mark.parametrize("text", [b"", b"no archive", gzip.compress(b"{}")[:-6] + b"damage"])
async def test_a_record_that_is_damaged_is_told(
    adopting: fake_cluster.Cluster, tmp_path: pathlib.Path, text: bytes
) -> None:
    """With what goes back all the same."""
    adopting.objects["/api/v1/namespaces/kube-system/secrets"] = [_secret("kube-system", text)]
    result = await _adopt(adopting, tmp_path, "gpushare", "--undo", "--yes")
    assert result.code != 0
    assert "the record cannot be read" in result.err
    assert "apply the original system's own manifests" in result.err


def _secret(namespace: str, text: bytes) -> dict[str, Any]:
    meta = {
        "name": "partage-adopted-gpushare",
        "namespace": namespace,
        "labels": {"app.kubernetes.io/part-of": "partage"},
    }
    return {"metadata": meta, "data": {"adoption.json.gz": base64.b64encode(text).decode()}}
