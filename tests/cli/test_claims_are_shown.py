"""``partage claims``, and what ``inspect`` and ``explain`` say of claims."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from partage.core import cards, grants
from partage.dialects import grant_record, nodes
from tests.cli import fake_cluster
from tests.cli.fake_cluster import CLAIMS, CLASSES, ELASTIC_GPUS, NODES, PODS, Object

MEMORY = "elasticgpu.io/gpu-memory"
SHARE = grants.Share(uuid="GPU-0", index=0, memory_mib=2000)


@pytest.fixture
def claimed(cluster: fake_cluster.Cluster) -> fake_cluster.Cluster:
    """A card with two claims, of which one is used; a third waits, and so do two pods."""
    card = cards.Card(uuid="GPU-0", index=0, memory_mib=16384, model="A100")
    shown = fake_cluster.node("n1", memory=16, count=1)
    shown["metadata"]["annotations"] = {nodes.CARDS: nodes.encode([card])}
    cluster.objects[NODES] = [shown]
    gpu_class = {"metadata": {"name": "shares"}, "provisioner": "elasticgpu.io/gpushare"}
    cluster.objects[CLASSES] = [gpu_class]
    cluster.objects[ELASTIC_GPUS] = [_elastic_gpu("used"), _elastic_gpu("spare")]
    cluster.objects[CLAIMS] = [
        _claim("used", "Bound"),
        _claim("spare", "Bound"),
        _claim("large", "Pending", "NoRoom", "1000 short on node n1"),
        _claim("other", "Pending", "NoRoom", "", namespace="lab"),
    ]
    cluster.objects[PODS] = [
        _pod("user", "used", node="n1"),
        _pod("next", "used"),
        _pod("ready", "spare"),
    ]
    return cluster


async def test_a_row_for_each_claim(claimed: fake_cluster.Cluster, tmp_path: pathlib.Path) -> None:
    """What it has and who uses it, or what it waits for."""
    result = await claimed.run("partage", "claims", "-n", "default", folder=tmp_path)
    assert (result.code, result.err) == (0, "")
    why = "NoRoom: 1000 short on node n1"
    assert result.out.splitlines() == [
        "NAMESPACE  CLAIM  STATUS   CLASS   NODE  MEMORY(MiB)  COMPUTE  USED BY  WAITS FOR",
        f"default    large  Pending  shares  -     -            -        -        {why}",
        "default    spare  Bound    shares  n1    2000         -        -        -",
        "default    used   Bound    shares  n1    2000         -        user     -",
    ]


async def test_claims_for_programs(claimed: fake_cluster.Cluster, tmp_path: pathlib.Path) -> None:
    """Of all namespaces, with cards and pods by their full names."""
    result = await claimed.run("partage", "claims", "-o", "json", folder=tmp_path)
    shown = json.loads(result.out)
    assert shown["kind"] == "Claims"
    by_name = {claim["name"]: claim for claim in shown["claims"]}
    assert set(by_name) == {"used", "spare", "large", "other"}
    assert by_name["used"]["used_by"] == ["default/user"]
    assert by_name["used"]["cards"] == ["GPU-0"]
    assert by_name["large"]["memory_mib"] is None


async def test_inspect_counts_what_claims_hold(
    claimed: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Once, whether or not a pod uses it; and says which pod does."""
    result = await claimed.run("partage", "inspect", "-o", "json", folder=tmp_path)
    [card] = json.loads(result.out)["nodes"][0]["cards"]
    assert card["used_mib"] == 4000
    tenants = {tenant["pod"]: tenant.get("used_by") for tenant in card["tenants"]}
    assert tenants == {"egpuc/used": ["default/user"], "egpuc/spare": None}


@pytest.mark.parametrize(
    ("pod", "code", "said"),
    [
        ("next", 1, "it waits: ElasticGPUClaim default/used is used by pod default/user; wait"),
        ("ready", 0, "its claims are bound on node n1, and it fits there"),
    ],
)
async def test_explain_says_what_a_pod_with_a_claim_waits_for(
    claimed: fake_cluster.Cluster, tmp_path: pathlib.Path, pod: str, code: int, said: str
) -> None:
    """Without any extender."""
    result = await claimed.run("partage", "explain", pod, folder=tmp_path)
    assert (result.code, result.err) == (code, "")
    assert result.out.startswith(f"default/{pod}: {said}")


async def test_a_cluster_without_claims(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """It says what to do, in one line; everything else goes on as before."""
    result = await cluster.run("partage", "claims", folder=tmp_path)
    said = "this cluster does not know claims; apply deploy/claims.yaml, as docs/claims.md says"
    assert (result.code, result.err) == (1, f"partage: {said}\n")
    assert (await cluster.run("partage", "inspect", folder=tmp_path)).code == 0


@pytest.mark.parametrize("kind", [CLAIMS, ELASTIC_GPUS, CLASSES, NODES])
async def test_an_account_without_the_rights_is_told_which(
    claimed: fake_cluster.Cluster, tmp_path: pathlib.Path, kind: str
) -> None:
    """By the words of the API server, and not that the definitions are missing."""
    claimed.refused[kind] = (403, "Forbidden", "you may not list these")
    result = await claimed.run("partage", "claims", folder=tmp_path)
    said = f"GET {kind}: 403 Forbidden: you may not list these"
    advice = "docs/inspect.md shows the ClusterRole that this needs"
    assert (result.code, result.err) == (1, f"partage: {said}; {advice}\n")


@pytest.mark.parametrize(
    ("gpu_class", "requested", "said"),
    [
        ("gone", {MEMORY: "2Gi"}, "ClassNotFound: there is no ElasticGPUClass gone"),
        ("theirs", {MEMORY: "2Gi"}, "Foreign: class theirs has the provisioner example.com/gpu, "),
        ("shares", {MEMORY: "2Gi"}, "NotSeen: no extender has looked at it yet; "),
        ("shares", {"cpu": 1}, "Invalid: spec.resources.requests[cpu]: a claim cannot ask for "),
    ],
)
async def test_a_claim_of_which_nothing_was_said_waits_for_something(
    claimed: fake_cluster.Cluster,
    tmp_path: pathlib.Path,
    *,
    gpu_class: str,
    requested: Object,
    said: str,
) -> None:
    """As where no extender runs, or where the class is another controller's."""
    theirs = {"metadata": {"name": "theirs"}, "provisioner": "example.com/gpu"}
    claimed.objects[CLASSES].append(theirs)
    made = _claim("new", "Pending", namespace="lab")
    made["spec"] = {"elasticGPUClassName": gpu_class, "resources": {"requests": requested}}
    claimed.objects[CLAIMS] = [made | {"status": {}}]
    result = await claimed.run("partage", "claims", folder=tmp_path)
    header, row = result.out.splitlines()
    assert row[header.index("WAITS FOR") :].startswith(said)


async def test_what_others_wrote_does_not_move_the_cursor(
    claimed: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Names that a claim gives are any text, and are in no column but their own."""
    claim = _claim("odd", "Lost", "NotFound", "there is\nnothing")
    claim["spec"] |= {"elasticGPUClassName": "a\tb\n\x1b[31m", "elasticGPUName": "x\ny"}
    claimed.objects[CLAIMS] = [claim]
    result = await claimed.run("partage", "claims", "-o", "wide", folder=tmp_path)
    _, row = result.out.splitlines()
    assert "a?b??[31m" in row
    assert "x?y" in row
    assert row.endswith("NotFound: there is?nothing")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("-n", "nowhere"), 0, "No claims found in namespace nowhere."),
        (("-o", "yaml"), 2, "'yaml' is not one of 'table', 'wide', 'json'."),
        (("notebook",), 2, "Got unexpected extra argument (notebook)"),
        (("--context", "stranger"), 1, "log in again, or choose another context"),
    ],
)
async def test_mistakes_are_told_in_a_line(
    claimed: fake_cluster.Cluster,
    tmp_path: pathlib.Path,
    *,
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    """With what to do, and nothing for programs to read."""
    result = await claimed.run("partage", "claims", *arguments, folder=tmp_path)
    assert (result.code, result.out) == (code, "")
    assert said in result.err
    assert result.err.count("\n") == 1


async def test_a_server_that_is_not_there_is_a_line(tmp_path: pathlib.Path) -> None:
    """As where the cluster was deleted, or is behind a network that is down."""
    async with fake_cluster.Cluster() as gone:
        await gone.run("partage", "claims", folder=tmp_path)
    result = await gone.run("partage", "claims", folder=tmp_path)
    assert (result.code, result.out) == (1, "")
    assert "Connection refused; check the server's address and that it runs" in result.err


async def test_an_account_that_may_not_read_claims_is_told_what_is_missing(
    claimed: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """As a problem beside all that it may read."""
    claimed.refused[CLASSES] = (403, "Forbidden", "you may not list elasticgpuclasses")
    result = await claimed.run("partage", "inspect", folder=tmp_path)
    assert result.code == 0
    assert "what claims hold is not shown" in result.out


def _claim(
    name: str, phase: str, reason: str = "Bound", message: str = "", namespace: str = "default"
) -> Object:
    bound = {"elasticGPUName": f"egpu-{name}"} if phase == "Bound" else {}
    condition = {"type": "Bound", "status": "False", "reason": reason, "message": message}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {
            "elasticGPUClassName": "shares",
            "resources": {"requests": {MEMORY: "2000Mi"}},
            **bound,
        },
        "status": {"phase": phase, "conditions": [condition]},
    }


def _elastic_gpu(claim: str) -> Object:
    owner = grants.Pod(f"elasticgpu/egpu-{claim}", "default", claim)
    grant = grants.Grant(
        pod=owner, node="n1", containers=(grants.ContainerGrant(name="", shares=(SHARE,)),)
    )
    named = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    return {
        "metadata": {
            "name": f"egpu-{claim}",
            "annotations": {grant_record.GRANT: grant_record.encode(grant)},
        },
        "spec": {
            "capacity": {MEMORY: "2000Mi"},
            "gpuShare": {"gpuName": "n1-00"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [named]}]}},
            "claimRef": {"namespace": "default", "name": claim, "uid": f"uid-{claim}"},
        },
        "status": {"phase": "Bound"},
    }


def _pod(name: str, claim: str, node: str = "") -> Object:
    phase = "Running" if node else "Pending"
    made = fake_cluster.pod(name, node, {"partage.dev/claim": 1}, phase=phase)
    meta: dict[str, Any] = made["metadata"]
    meta.setdefault("annotations", {})["elasticgpu.io/egpuc-c0"] = claim
    if node:
        container = grants.ContainerGrant(name="c0", shares=(SHARE,), elastic_gpu=f"egpu-{claim}")
        owner = grants.Pod(meta["uid"], "default", name)
        grant = grants.Grant(pod=owner, node=node, containers=(container,), dialect="claims")
        meta["annotations"][grant_record.GRANT] = grant_record.encode(grant)
    return made
