"""`partage doctor --cluster` as a command: parts that cannot be read, pages, codes, progress."""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import pytest_asyncio

from partage.cli import notices
from tests.cli import fake_cluster

DEPLOYMENTS, DAEMON_SETS = "/apis/apps/v1/deployments", "/apis/apps/v1/daemonsets"
LEASES = "/apis/coordination.k8s.io/v1/leases"
DOCTOR = ("partage", "doctor", "--cluster")


@pytest_asyncio.fixture
async def small(cluster: fake_cluster.Cluster) -> fake_cluster.Cluster:
    """A cluster without anything of Partage, of which everything can be listed."""
    for path in (
        DEPLOYMENTS,
        DAEMON_SETS,
        LEASES,
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices",
        "/api/v1/namespaces/default/events",
    ):
        cluster.objects[path] = []
    return cluster


async def test_what_is_forbidden_is_one_finding_with_the_right_it_needs(
    small: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """And all else is looked at."""
    small.refused[fake_cluster.PODS] = (403, "Forbidden", "pods is forbidden")
    findings = await _findings(small, tmp_path)
    assert findings["pods"] == {
        "object": "pods",
        "status": "unchecked",
        "text": "not checked: pods is forbidden",
        "remedy": "allow list pods (deploy/doctor.yaml)",
    }
    assert findings["extender"]["status"] == "problem"


async def test_a_server_that_fails_at_one_thing(
    small: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """It is told in the server's words, and what to do is not about rights."""
    small.refused[LEASES] = (500, "InternalError", "etcd is slow")
    findings = await _findings(small, tmp_path)
    assert "etcd is slow" in findings["leases partage-extender"]["text"]
    assert findings["leases partage-extender"]["remedy"].startswith("check the API server")


async def test_an_installation_of_another_name_is_looked_up_by_that(
    small: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """As the chart's nameOverride makes it, in whichever namespace."""
    names = {"part-of": "partage", "name": "sharing", "instance": "x", "managed-by": "Helm"}
    labels = {f"app.kubernetes.io/{name}": text for name, text in names.items()}
    container = {"name": "e", "image": "partage:0.1.0", "args": ["partage", "extender"]}
    meta = {"name": "sharing-extender", "namespace": "gpu", "labels": labels}
    spec = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    small.objects[DEPLOYMENTS] = [{"metadata": meta, "spec": spec}]
    await _findings(small, tmp_path)
    assert (LEASES, "metadata.name=sharing-extender") in small.requests
    paths = {path for path, _ in small.requests}
    assert "/api/v1/namespaces/gpu/configmaps/sharing-scheduler" in paths
    assert "/api/v1/namespaces/gpu/secrets/sharing-extender-tls" in paths
    assert "/apis/discovery.k8s.io/v1/namespaces/gpu/endpointslices" in paths
    assert not any("kube-system/secrets" in path for path in paths)


async def test_lists_that_expire_and_servers_that_are_busy(
    small: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """They are read again, and nothing is counted twice."""
    small.objects[fake_cluster.NODES] = [
        fake_cluster.node(f"n{i}", memory=32, count=2) for i in range(5)
    ]
    small.objects[fake_cluster.PODS] = [
        fake_cluster.pod(f"p{i}", "n0", {"aliyun.com/gpu-mem": 1}) for i in range(5)
    ]
    small.expiring |= {fake_cluster.NODES, fake_cluster.PODS}
    small.busy |= {DEPLOYMENTS}
    findings = await _findings(small, tmp_path)
    assert findings["5 pods"]["objects"] == [f"default/p{i}" for i in range(5)]
    assert len(findings["5 nodes"]["objects"]) == 5


async def test_a_handful_of_names_for_people(
    small: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Three hundred pods are one line of five names."""
    small.objects[fake_cluster.NODES] = [fake_cluster.node("n0", memory=32, count=2)]
    small.objects[fake_cluster.PODS] = [
        fake_cluster.pod(f"p{i:03}", "n0", {"aliyun.com/gpu-mem": 1}) for i in range(317)
    ]
    done = await small.run(*DOCTOR, folder=tmp_path)
    (line,) = (line for line in done.out.splitlines() if "317 pods" in line)
    assert "default/p004 and 312 more;" in line
    assert "default/p005" not in done.out
    assert (done.code, done.err) == (1, "")


async def test_what_a_server_says_does_not_move_the_cursor(
    small: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Others write names and messages."""
    small.refused[fake_cluster.PODS] = (403, "Forbidden", "no\x1b[2Jpods\nproblem")
    done = await small.run(*DOCTOR, folder=tmp_path)
    assert "\x1b" not in done.out
    assert "no?[2Jpods?problem" in done.out


async def test_a_login_that_is_not_accepted(
    small: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """One line, what to do, and the code of a doctor who cannot look."""
    done = await small.run(*DOCTOR, "--context", "stranger", folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("log in again, or choose another context\n")
    assert done.err.count("\n") == 1


async def test_a_server_that_is_none(tmp_path: pathlib.Path) -> None:
    """Nobody listens there."""
    path = fake_cluster.kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    done = await fake_cluster.run(*DOCTOR, environ={"KUBECONFIG": str(path)})
    assert done.code == 2
    assert "no connection to http://127.0.0.1:1" in done.err


async def test_options_of_a_cluster_without_one(tmp_path: pathlib.Path) -> None:
    """They are refused, not ignored."""
    done = await fake_cluster.run("partage", "doctor", "--context", "x", environ={})
    assert done.code == 2
    assert "--kubeconfig and --context are for --cluster" in done.err


class TestProgress:
    """One line of a terminal while it looks."""

    def test_on_a_terminal(self) -> None:
        """A text covers the one before, and nothing is left in the end."""
        stream = _Terminal()
        progress = notices.Progress(stream)
        progress.show("pods: 1,500")
        progress.show("leases")
        progress.clear()
        assert stream.getvalue() == "\rpods: 1,500\rleases     \r      \r"

    def test_elsewhere(self) -> None:
        """A log gets nothing."""
        stream = io.StringIO()
        progress = notices.Progress(stream)
        progress.show("pods: 1,500")
        progress.clear()
        assert stream.getvalue() == ""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def _findings(
    cluster: fake_cluster.Cluster, folder: pathlib.Path
) -> dict[str, dict[str, Any]]:
    done = await cluster.run(*DOCTOR, "-o", "json", folder=folder)
    assert "Traceback" not in done.err
    return {finding["object"]: finding for finding in json.loads(done.out)["findings"]}
