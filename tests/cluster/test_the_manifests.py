"""The files under deploy/, on a real API server: accepted, and with the least of rights enough."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from cluster import api, extending, objects, scheduling
from cluster.control_plane import ControlPlane
from tests.cluster import making
from tests.cluster.making import MEMORY

DEPLOY = Path(__file__).parents[2] / "deploy"


def _manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def _apply(plane: ControlPlane) -> None:
    for manifest in _manifests("extender.yaml"):
        try:
            plane.client.create(manifest)
        except api.ApiError as error:
            if error.status != 409:  # it may be there from another test
                raise


def test_the_extender_works_with_the_rights_of_its_service_account(
    clean_cluster: ControlPlane, tmp_path: Path
) -> None:
    """It reads, binds, leads and wakes the scheduler, with nothing more than the manifest gives."""
    plane = clean_cluster
    _apply(plane)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(_as_service_account(plane, "partage-extender"))
    extender = extending.Extender(tmp_path, kubeconfig, options=("--leader-elect",))
    try:
        extender.start()
        making.schedule(plane, extender.port)
        plane.client.create(objects.node("n1", cards=2, card_units=16))
        for i in range(2):
            plane.client.create(objects.pod(f"a{i}", {MEMORY: 10}))
            making.bound(plane, f"a{i}")
        plane.client.create(objects.pod("p", {MEMORY: 12}))
        making.eventually(lambda: making.events(plane, "p"))
        plane.client.delete("Pod", "a0", grace_seconds=0)
        making.bound(plane, "p")
        assert "403" not in extender.log(lines=1000)
    finally:
        extender.close()


def test_in_gpushares_place_it_works_with_gpushares_rights_and_says_what_is_missing(
    clean_cluster: ControlPlane, tmp_path: Path
) -> None:
    """The role of its manifest: no ConfigMaps, no patch of nodes."""
    plane = clean_cluster
    for manifest in _manifests("gpushare-drop-in.yaml"):
        if manifest["kind"] == "ClusterRole":
            nodes, pods, binding, _configmaps = manifest["rules"]
            nodes["verbs"].remove("patch")
            manifest["rules"] = [nodes, pods, binding]
        plane.client.create(manifest)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(_as_service_account(plane, "gpushare-schd-extender"))
    extender = extending.Extender(tmp_path, kubeconfig)
    try:
        extender.start()
        plane.start_scheduler(scheduling.gpushare(plane.kubeconfig, port=extender.port))
        plane.client.create(objects.node("n1", cards=2, card_units=16))
        plane.client.create(objects.pod("p", {MEMORY: 10}))
        making.bound(plane, "p")
        assert "allow list and watch" in extender.log(lines=1000)
    finally:
        extender.close()


def test_the_extenders_service_account_may_do_nothing_else(clean_cluster: ControlPlane) -> None:
    """Not read a secret, not delete a pod, not write a ConfigMap."""
    _apply(clean_cluster)
    for verb, resource in (
        ("get", "secrets"),
        ("delete", "pods"),
        ("patch", "pods"),
        ("create", "pods"),
        ("update", "configmaps"),
        ("delete", "nodes"),
    ):
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "system:serviceaccount:kube-system:partage-extender",
                "resourceAttributes": {
                    "verb": verb,
                    "resource": resource,
                    "namespace": "kube-system",
                },
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = clean_cluster.client.call("POST", path, review)
        assert answer["status"]["allowed"] is False, (verb, resource)


def test_the_schedulers_configuration_names_every_resource_and_is_accepted(
    clean_cluster: ControlPlane,
) -> None:
    """With nothing changed but where kube-scheduler finds its files."""
    text = (DEPLOY / "scheduler-config.yaml").read_text()
    (extender,) = yaml.safe_load(text)["extenders"]
    assert sorted(r["name"] for r in extender["managedResources"]) == list(scheduling.resources())
    read = yaml.safe_load(text)
    read["clientConnection"]["kubeconfig"] = str(clean_cluster.kubeconfig)
    del read["extenders"][0]["tlsConfig"]  # names files of a control plane's machine
    clean_cluster.start_scheduler(yaml.safe_dump(read))
    clean_cluster.stop_scheduler()


def _as_service_account(plane: ControlPlane, name: str) -> str:
    path = f"/api/v1/namespaces/kube-system/serviceaccounts/{name}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plane.client.call("POST", path, request)["status"]["token"]
    read = yaml.safe_load(plane.kubeconfig.read_text())
    read["users"][0]["user"] = {"token": token}
    assert base64.b64decode(read["clusters"][0]["cluster"]["certificate-authority-data"])
    return yaml.safe_dump(read)
