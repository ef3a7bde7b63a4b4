"""The guard on a real API server: nobody gets around a fence by what they submit."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from tests.cluster import installing, making, service_accounts

MEMORY = objects.MEMORY
GRANT = "partage.dev/grant"
POLICY = "ValidatingAdmissionPolicy 'partage-"


@pytest.fixture
def guarded(clean_cluster: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster with the policies in force."""
    policies = installing.manifests("guard.yaml")
    installing.apply(clean_cluster, policies)
    forged = _pod("forged", annotations={GRANT: "{}"})
    devices = _pod("devices", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    for pod in (forged, devices):  # each policy has a moment of its own from which it is in force
        making.eventually(functools.partial(_refusal, clean_cluster, pod))
    yield clean_cluster
    for policy in policies:
        clean_cluster.client.delete(policy["kind"], policy["metadata"]["name"], "")


OLD_BINDINGS = "/api/v1/namespaces/default/bindings"  # the same as a pod's own, and still served


def _pod(
    name: str,
    limits: dict[str, Any] | None = None,
    *,
    annotations: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
    **container: Any,
) -> api.Object:
    pod = objects.pod(name, limits or {})
    pod["metadata"]["annotations"] = annotations or {}
    pod["spec"]["containers"][0] |= container
    pod["spec"] |= spec or {}
    return pod


def _refusal(plane: ControlPlane, pod: api.Object, namespace: str = "default") -> str:
    """What the guard says against a pod; empty if nothing."""
    path = f"{api.path('Pod', '', namespace)}?dryRun=All"
    try:
        plane.client.call(
            "POST", path, {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}
        )
    except api.ApiError as error:
        if POLICY not in str(error):
            raise
        return str(error)
    return ""


def _path(path: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "hostPath": {"path": path}}]}


CARD = {MEMORY: 2}
REFUSED = {
    "cards by name": _pod("p", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
    "cards by reference": _pod(
        "p",
        env=[
            {
                "name": "NVIDIA_VISIBLE_DEVICES",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
            }
        ],
    ),
    "mps": _pod("p", env=[{"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/x"}]),
    "a device": _pod("p", spec=_path("/dev/nvidia0")),
    "all devices": _pod("p", spec=_path("/dev")),
    "the kubelet": _pod("p", spec=_path("//var/lib/./kubelet//device-plugins")),
    "fences": _pod("p", spec=_path("/run/partage/")),
    "the root": _pod("p", spec=_path("/")),
    "a parent": _pod("p", spec=_path("/var/lib")),
    "privileged": _pod("p", CARD, securityContext={"privileged": True}),
    "SYS_ADMIN": _pod("p", CARD, securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
    "SYS_CHROOT": _pod("p", CARD, securityContext={"capabilities": {"add": ["SYS_CHROOT"]}}),
    "all rights": _pod("p", CARD, securityContext={"capabilities": {"add": ["ALL"]}}),
    "host processes": _pod("p", CARD, spec={"hostPID": True}),
    "past the scheduler": _pod("p", CARD, spec={"nodeName": "n1"}),
    "an init container": _pod(
        "p",
        CARD,
        spec={
            "initContainers": [{"name": "i", "image": "x", "securityContext": {"privileged": True}}]
        },
    ),
}
ALLOWED = {
    "no cards": _pod("p", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}]),
    "shared memory": _pod("p", spec=_path("/dev/shm")),
    "logs": _pod("p", spec=_path("/var/log")),
    "a name that begins alike": _pod("p", spec=_path("/var/lib/kubelet-of-mine")),
    "privileged without cards": _pod("p", securityContext={"privileged": True}),
    "host processes without cards": _pod("p", spec={"hostPID": True}),
    "a share": _pod("p", CARD),
}


@pytest.mark.parametrize("pod", REFUSED.values(), ids=REFUSED)
def test_a_way_around_the_fence_is_refused(guarded: ControlPlane, pod: api.Object) -> None:
    """The text says what it is, what to do, and who can allow it."""
    text = _refusal(guarded, pod)

    assert "an administrator can allow it: kubectl label namespace default" in text


@pytest.mark.parametrize("pod", ALLOWED.values(), ids=ALLOWED)
def test_what_harms_nobody_comes_in(guarded: ControlPlane, pod: api.Object) -> None:
    """Plain pods of a cluster must not notice the guard."""
    assert _refusal(guarded, pod) == ""


def test_a_namespace_can_be_excepted_but_not_from_the_rules_about_records(
    guarded: ControlPlane,
) -> None:
    """An administrator who may label the namespace decides."""
    client = guarded.client
    labels = {"partage.dev/guard": "off"}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trusted"}}
    client.create({**manifest, "metadata": {"name": "trusted", "labels": labels}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    client.create({**account, "metadata": {"name": "default", "namespace": "trusted"}})

    making.eventually(lambda: not _refusal(guarded, REFUSED["privileged"], "trusted"))
    assert GRANT in _refusal(guarded, _pod("p", CARD, annotations={GRANT: "{}"}), "trusted")
    client.delete("Namespace", "trusted", "")


def test_nobody_but_partage_writes_records(guarded: ControlPlane, tmp_path: Path) -> None:
    """Not when a pod is made, not later, not by its status, and not by a Binding."""
    client = guarded.client
    client.create(objects.node("n1", cards=2, card_units=16))
    client.create(objects.pod("p", CARD))
    forged = {"metadata": {"annotations": {GRANT: "{}"}}}
    gpushare = {"metadata": {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "1"}}}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", **forged["metadata"]},
        "target": {"kind": "Node", "name": "n1"},
    }

    for change, part in ((forged, ""), (gpushare, ""), (forged, "status")):
        with pytest.raises(api.ApiError, match="records which cards a pod has"):
            client.patch("Pod", "p", change, subresource=part)
    for path in (api.path("Pod", "p", subresource="binding"), OLD_BINDINGS):
        with pytest.raises(api.ApiError, match="records which cards a pod has"):
            client.call("POST", path, binding)
    client.patch("Pod", "p", {"metadata": {"annotations": {"note": "mine"}}})

    installing.apply(guarded, installing.manifests("extender.yaml"))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(service_accounts.kubeconfig(guarded, "partage-extender"))
    extender = api.Api.of(kubeconfig)
    extender.call("POST", api.path("Pod", "p", subresource="binding"), binding)
    extender.close()
    assert client.get("Pod", "p")["metadata"]["annotations"][GRANT] == "{}"


def test_a_guard_that_is_off_is_told(guarded: ControlPlane) -> None:
    """By the doctor, with an exit code and what to do about it."""
    client = guarded.client
    before = _doctor(guarded)
    change = {"spec": {"validationActions": ["Warn"]}}
    client.patch("ValidatingAdmissionPolicyBinding", "partage-guard", change, namespace="")
    weakened = _doctor(guarded)
    client.delete("ValidatingAdmissionPolicy", "partage-records", "")
    off = _doctor(guarded)
    installing.apply(guarded, installing.manifests("guard.yaml"))  # as the next test expects it

    assert (before["policy partage-guard"], before["policy partage-records"]) == ("ok", "ok")
    assert weakened["policy partage-guard"] == "note"
    assert (off["policy partage-records"], off["exit code"]) == ("problem", "1")


def _doctor(plane: ControlPlane) -> dict[str, str]:
    command = [str(Path(sys.executable).with_name("partage")), "doctor", "--cluster", "-o", "json"]
    done = subprocess.run(
        [*command, "--kubeconfig", plane.kubeconfig], capture_output=True, check=False, timeout=60
    )
    findings = json.loads(done.stdout)["findings"]
    told_of = {finding["object"]: finding["status"] for finding in findings}
    return {**told_of, "exit code": str(done.returncode)}


def test_an_ephemeral_container_is_guarded_like_the_others(guarded: ControlPlane) -> None:
    """`kubectl debug` on a pod with cards, with rights that would take the fence away."""
    client = guarded.client
    client.create(objects.pod("p", CARD))

    def debug(name: str, **more: Any) -> api.Object:
        container = {"name": name, "image": "x", "targetContainerName": "main", **more}
        change = {"spec": {"ephemeralContainers": [container]}}
        return client.patch(
            "Pod", "p", change, subresource="ephemeralcontainers", how=api.STRATEGIC
        )

    with pytest.raises(api.ApiError, match="could take its fence away"):
        debug("root", securityContext={"privileged": True})
    debug("plain")
