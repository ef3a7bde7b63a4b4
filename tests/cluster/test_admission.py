"""The webhooks on a real API server: what is refused, completed and warned of at submission."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import admission_process
from partage.admission import webhooks
from tests.cluster import admitting, installing, service_accounts, submitting

MEMORY = objects.MEMORY
SHARE = admitting.SHARE


@pytest.fixture
def admission(clean_cluster: ControlPlane, tmp_path: Path) -> Iterator[admission_process.Admission]:
    """Webhooks that are asked, and a node of 16 GiB."""
    clean_cluster.client.create(objects.node("n1", cards=2, card_units=16))
    with admitting.admission(clean_cluster, tmp_path) as process:
        yield process


def _limits(pod: api.Object) -> dict[str, str]:
    limits: dict[str, str] = pod["spec"]["containers"][0]["resources"]["limits"]
    return limits


def _refusal(plane: ControlPlane, pod: api.Object) -> str:
    with pytest.raises(api.ApiError) as caught:
        plane.client.create(pod)
    return str(caught.value)


def _warnings(plane: ControlPlane, made: api.Object) -> list[str]:
    """What kubectl would print when an object is created."""
    path = api.path(made["kind"], version=made["apiVersion"])
    answer = submitting.submit(plane, "POST", f"{path}?dryRun=All", json.dumps(made))
    assert answer.made
    return answer.warnings


def _workload(kind: str, limits: dict[str, Any]) -> api.Object:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {
            "containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}],
            "restartPolicy": "Never" if kind == "Job" else "Always",
        },
    }
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": "x"}}}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"template": template, **selector},
    }


def test_a_pod_is_completed_on_its_way_in(
    admission: admission_process.Admission, clean_cluster: ControlPlane
) -> None:
    """Requests follow from limits that were added, as from any others."""
    client = clean_cluster.client

    share = client.create(objects.pod("share", {SHARE: 3000}))
    whole = client.create(objects.pod("whole", {"tensorstack.dev/nvidia-gpu": 1}))

    resources = share["spec"]["containers"][0]["resources"]
    assert resources["limits"]["partage.dev/cards"] == "1"
    assert resources["requests"] == resources["limits"]
    taint = {"key": "sched.tensorstack.dev/xgn-mode", "value": "true", "effect": "NoSchedule"}
    assert taint in whole["spec"]["tolerations"]


def test_what_can_never_work_is_refused_with_its_rule(
    admission: admission_process.Admission, clean_cluster: ControlPlane
) -> None:
    """By the dialect's rules, and by the cards that the cluster has."""
    odd = _refusal(
        clean_cluster, objects.pod("odd", {MEMORY: 2, "aliyun.com/gpu-core.percentage": 33})
    )
    large = _refusal(clean_cluster, objects.pod("large", {MEMORY: 17}))

    assert "33 is not a multiple of 5; write 30 or 35" in odd
    assert "the largest card of node n1 has 16384 MiB" in large


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job"])
def test_a_template_whose_pods_would_be_refused_is_warned_of(
    admission: admission_process.Admission, clean_cluster: ControlPlane, kind: str
) -> None:
    """The workload comes in; kubectl prints the warning."""
    (warning,) = _warnings(clean_cluster, _workload(kind, {MEMORY: 17}))

    assert "spec.template: its pods will be refused" in warning
    assert _warnings(clean_cluster, _workload(kind, {MEMORY: 3})) == []


def test_a_manifest_may_be_applied_again_and_again(
    admission: admission_process.Admission, clean_cluster: ControlPlane
) -> None:
    """Server-side, with what was added still in place and not in the manifest."""
    pod = objects.pod("again", {SHARE: 3000})
    where = f"{api.path('Pod', 'again')}?fieldManager=person"
    for _ in range(2):
        stored = clean_cluster.client.call(
            "PATCH", where, pod, content_type="application/apply-patch+yaml"
        )
        assert _limits(stored)["partage.dev/cards"] == "1"


def test_while_it_is_down_pods_with_cards_are_refused_and_others_come_in(
    admission: admission_process.Admission, clean_cluster: ControlPlane
) -> None:
    """A pod with cards never comes in unseen; when it is back, all goes on."""
    client = clean_cluster.client
    admission.kill()

    text = _refusal(clean_cluster, objects.pod("cards", {MEMORY: 3}))
    client.create(objects.pod("plain", {}))
    client.create(_workload("Deployment", {MEMORY: 17}))
    admission.start()
    client.create(objects.pod("cards", {MEMORY: 3}))

    assert "failed calling webhook" in text
    assert "partage.dev" in text
    client.delete("Deployment", "w")


def test_replicas_share_one_certificate_and_survive_the_loss_of_it(
    admission: admission_process.Admission, clean_cluster: ControlPlane, tmp_path: Path
) -> None:
    """The second reads what the first made. A Secret that was deleted is made anew."""
    client = clean_cluster.client
    secret = f"{webhooks.NAME}-tls"
    before = client.get("Secret", secret, installing.SYSTEM)["data"]["tls.crt"]
    second = admission_process.Admission(tmp_path, tmp_path / "admission.kubeconfig", name="b")
    try:
        second.start()
        assert client.get("Secret", secret, installing.SYSTEM)["data"]["tls.crt"] == before
        client.delete("Secret", secret, installing.SYSTEM)
        admission.kill()
        admission.start()
        admitting.asked(clean_cluster, admission)
    finally:
        second.close()
    assert client.get("Secret", secret, installing.SYSTEM)["data"]["tls.crt"] != before


def test_its_account_may_do_nothing_else(clean_cluster: ControlPlane) -> None:
    """It reads one Secret and no other, and changes its own configurations only."""
    installing.apply(clean_cluster, installing.manifests("admission.yaml"))
    account, secret, group = webhooks.NAME, f"{webhooks.NAME}-tls", "admissionregistration.k8s.io"
    webhook = "mutatingwebhookconfigurations"

    assert service_accounts.may(clean_cluster, account, "get", "secrets", name=secret)
    for verb, resource in (("get", "secrets"), ("list", "secrets"), ("list", "pods")):
        assert not service_accounts.may(clean_cluster, account, verb, resource)
    assert not service_accounts.may(clean_cluster, account, "patch", webhook, group=group, name="x")
    assert not service_accounts.may(clean_cluster, account, "create", webhook, group=group)
