"""`kubectl get gpu` on a real control plane: the cards, who has them, and nothing of last week."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from tests.cluster import definitions, installing, making, service_accounts
from tests.cluster.making import MEMORY

GPUS = "/apis/elasticgpu.io/v1alpha1/gpus"
FORMS = {
    "status apart": objects.gpu_definition(status_apart=True),
    "shipped": next(
        made
        for made in installing.manifests("claims.yaml")
        if made["metadata"]["name"] == "gpus.elasticgpu.io"
    ),
}
GPU_MEMORY = "elasticgpu.io/gpu-memory"
ONE_FORM = pytest.mark.parametrize("defined", ["shipped"], indirect=True)


@pytest.fixture(params=FORMS)
def defined(clean_cluster: ControlPlane, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane on which GPU objects are defined."""
    with definitions.installed(clean_cluster, [FORMS[request.param]]):
        yield clean_cluster


@pytest.fixture
def plane(defined: ControlPlane, extender: extender_process.Extender) -> ControlPlane:
    """And an extender, with the scheduler that asks it."""
    extender.start()
    making.schedule(defined, extender.port)
    return defined


def gpus(plane: ControlPlane) -> dict[str, api.Object]:
    """All objects by name."""
    return {gpu["metadata"]["name"]: gpu for gpu in plane.client.call("GET", GPUS)["items"]}


def tenants(plane: ControlPlane) -> dict[str, list[str]]:
    """The pods on each card."""
    return {
        name: sorted(
            tenant["pod"] for tenant in gpu.get("status", {}).get("allocated", {}).values()
        )
        for name, gpu in gpus(plane).items()
    }


def become(plane: ControlPlane, expected: dict[str, list[str]]) -> None:
    """Wait until the cards have these tenants; a card is written in two steps, both are over."""

    def are_so() -> bool:
        ours = [gpu for gpu in gpus(plane).values() if gpu["spec"].get("nodeName")]
        return tenants(plane) == expected and all("status" in gpu for gpu in ours)

    making.eventually(are_so, why=lambda: str(tenants(plane)))


def versions(plane: ControlPlane) -> dict[str, str]:
    """Of all objects: another one after each write."""
    return {name: gpu["metadata"]["resourceVersion"] for name, gpu in gpus(plane).items()}


def test_cards_and_tenants_are_shown_and_follow(plane: ControlPlane) -> None:
    """A pod comes, a pod goes, a node goes; a write for each change of a card, and no other."""
    plane.client.create(objects.node("n1", cards=2, card_units=16))
    plane.client.create(objects.node("n2", cards=1, card_units=4))
    empty: dict[str, list[str]] = {"n1-00": [], "n1-01": [], "n2-00": []}
    become(plane, empty)
    plane.client.create(objects.pod("a", {MEMORY: 10}))
    pod = making.bound(plane, "a")
    [share] = making.grant(pod)["containers"][0]["shares"]
    name = f"n1-{share['index']:02d}"
    become(plane, empty | {name: ["a"]})

    gpu = gpus(plane)[name]
    assert gpu["metadata"]["labels"]["elasticgpu.io/node"] == "n1"
    assert gpu["spec"]["nodeName"] == "n1"
    assert gpu["spec"]["memory"] == 16 << 30
    assert gpu["status"]["state"] == "Healthy"
    assert gpu["status"]["capacity"][GPU_MEMORY] == str(16 << 10)
    assert gpu["status"]["allocatable"][GPU_MEMORY] == str(6 << 10)
    [container] = gpu["status"]["allocated"][pod["metadata"]["uid"]]["containers"]
    assert container["resource"] == {GPU_MEMORY: str(10 << 10)}

    before = versions(plane)
    plane.client.delete("Pod", "a", grace_seconds=0)
    become(plane, empty)
    plane.client.delete("Node", "n2")
    become(plane, {"n1-00": [], "n1-01": []})
    after = versions(plane)
    assert {changed for changed in after if after[changed] != before[changed]} == {name}


@ONE_FORM
def test_a_killed_extender_loses_nothing(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """What happened meanwhile is written when it is back; what was right is left alone."""
    plane.client.create(objects.node("n1", cards=1, card_units=16))
    plane.client.create(objects.node("n2", cards=1, card_units=16))
    plane.client.create(objects.pod("a", {MEMORY: 10}))
    where = making.bound(plane, "a")["spec"]["nodeName"]
    other = {"n1": "n2", "n2": "n1"}[where]
    become(plane, {f"{where}-00": ["a"], f"{other}-00": []})
    extender.kill()
    before = versions(plane)
    plane.client.delete("Pod", "a", grace_seconds=0)
    extender.start()
    become(plane, {f"{where}-00": [], f"{other}-00": []})
    assert versions(plane)[f"{other}-00"] == before[f"{other}-00"]


def test_edits_are_undone_and_foreign_objects_stay(plane: ControlPlane) -> None:
    """An object in the place of ours is told as a problem, and is left as it is."""
    foreign = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU", "spec": {"index": 7}}
    for name in ("n1-00", "mine-00"):
        plane.client.call("POST", GPUS, foreign | {"metadata": {"name": name}})
    plane.client.create(objects.node("n1", cards=2, card_units=16))
    become(plane, {"n1-00": [], "n1-01": [], "mine-00": []})
    patched = {"metadata": {"annotations": {"note": "mine"}}, "spec": {"uuid": "forged"}}
    plane.client.call("PATCH", f"{GPUS}/n1-01", patched, content_type=api.MERGE)
    making.eventually(lambda: gpus(plane)["n1-01"]["spec"].get("uuid") != "forged")
    assert gpus(plane)["n1-01"]["metadata"]["annotations"] == {"note": "mine"}
    plane.client.call("DELETE", f"{GPUS}/n1-01")
    making.eventually(lambda: "n1-01" in gpus(plane))
    assert [gpus(plane)[name]["spec"] for name in ("n1-00", "mine-00")] == [{"index": 7}] * 2


@ONE_FORM
def test_the_next_leader_goes_on(
    defined: ControlPlane, new_extender: Callable[..., extender_process.Extender]
) -> None:
    """Of two replicas one writes; when it is killed, the other one does."""
    replicas = [new_extender("--leader-elect") for _ in range(2)]
    replicas[0].start()
    replicas[1].start(ready=False)
    defined.client.create(objects.node("n1", cards=1, card_units=16))
    become(defined, {"n1-00": []})
    assert replicas[1].metric("partage_gpu_object_writes_total") == 0
    replicas[0].kill()
    defined.client.create(objects.node("n2", cards=1, card_units=16))
    making.eventually(lambda: tenants(defined) == {"n1-00": [], "n2-00": []})


@ONE_FORM
def test_the_rights_of_the_manifest_are_enough(defined: ControlPlane, tmp_path: Path) -> None:
    """To make, change and delete objects."""
    installing.apply(defined, installing.manifests("extender.yaml"))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(service_accounts.kubeconfig(defined, "partage-extender"))
    extender = extender_process.Extender(tmp_path, kubeconfig)
    try:
        extender.start()
        making.schedule(defined, extender.port)
        defined.client.create(objects.node("n1", cards=1, card_units=16))
        become(defined, {"n1-00": []})
        defined.client.create(objects.pod("a", {MEMORY: 10}))
        become(defined, {"n1-00": ["a"]})
        defined.client.delete("Pod", "a", grace_seconds=0)
        defined.client.delete("Node", "n1")
        become(defined, {})
        assert "forbidden" not in extender.log(lines=1000)
    finally:
        extender.close()


def test_without_the_definition_all_goes_as_before(
    clean_cluster: ControlPlane, extender: extender_process.Extender
) -> None:
    """Pods are bound, and the log says once what is not there."""
    extender.start()
    making.schedule(clean_cluster, extender.port)
    clean_cluster.client.create(objects.node("n1", cards=1, card_units=16))
    clean_cluster.client.create(objects.pod("a", {MEMORY: 10}))
    making.bound(clean_cluster, "a")
    making.eventually(lambda: "their definition is not installed" in extender.log(lines=1000))
    assert extender.metric("partage_problems") == 0


@ONE_FORM
def test_kubectl_shows_them(plane: ControlPlane, programs: Path) -> None:
    """By their node, too."""
    plane.client.create(objects.node("n1", cards=1, card_units=16))
    become(plane, {"n1-00": []})
    command = [str(programs / "kubectl"), "--kubeconfig", str(plane.kubeconfig), "get", "gpu"]
    options = ["-l", "elasticgpu.io/node=n1", "-o", "json"]
    shown = subprocess.run([*command, *options], check=True, capture_output=True)
    assert [gpu["metadata"]["name"] for gpu in json.loads(shown.stdout)["items"]] == ["n1-00"]
