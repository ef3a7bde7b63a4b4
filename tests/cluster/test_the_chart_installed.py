"""The chart on a real API server, and Helm that installs, upgrades and removes it."""

from __future__ import annotations

import base64
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster import api, objects
from cluster.chart import helm
from cluster.control_plane.control_plane import ControlPlane
from tests.cluster import definitions, making, rendering, service_accounts

pytestmark = pytest.mark.usefixtures("helm_program")

SPACE = rendering.NAMESPACE
may = functools.partial(service_accounts.may, home=SPACE)


@pytest.fixture
def plane(clean_cluster: ControlPlane) -> ControlPlane:
    """A cluster with the namespace of the release."""
    try:
        clean_cluster.client.create(_namespace(SPACE))
    except api.ApiError as error:
        if error.status != 409:
            raise
    return clean_cluster


@pytest.fixture
def release(plane: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster with the chart installed, as far as an API server goes: no pod ever starts."""
    before = definitions.names(plane)
    # Objects of the plain manifests may be there from other tests.
    over = ("--take-ownership", "--force-conflicts")
    try:
        _helm(plane, "install", "partage", str(helm.CHART), *over)
        yield plane
    finally:
        if "partage" in _helm(plane, "list", "--short"):
            _helm(plane, "uninstall", "partage", "--no-hooks")  # no Job would ever end
        definitions.remove(plane, definitions.names(plane) - before)


@pytest.mark.parametrize("values", rendering.FILES, ids=lambda path: path.name)
def test_the_api_server_takes_what_is_rendered(
    plane: ControlPlane, programs: Path, values: Path
) -> None:
    """Strictly: with admission, expressions and defaults, and no field that it does not know."""
    made = [o for o in rendering.objects(values) if o["kind"] != "PodMonitor"]
    dry = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    where = ("--kubeconfig", str(plane.kubeconfig))
    command = [str(programs / "kubectl"), *where, "apply", *dry, "-f", "-"]
    text = yaml.safe_dump_all(made)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(made)


def test_an_upgrade_leaves_what_the_programs_wrote(release: ControlPlane) -> None:
    """Their authority is not in the chart; were it lost, pods with cards would be refused."""
    authority = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()
    kind, name = "MutatingWebhookConfiguration", "partage-admission"
    change = {
        "webhooks": [
            {"name": webhook["name"], "clientConfig": {"caBundle": authority}}
            for webhook in release.client.get(kind, name, "")["webhooks"]
        ]
    }
    release.client.patch(kind, name, change, namespace="", how=api.STRATEGIC)
    _helm(release, "upgrade", "partage", str(helm.CHART), "--set", "extender.policy=spread")
    webhooks = release.client.get(kind, name, "")["webhooks"]
    assert {webhook["clientConfig"].get("caBundle") for webhook in webhooks} == {authority}
    settings = release.client.get("ConfigMap", "partage-extender", SPACE)["data"]["extender.toml"]
    assert 'policy = "spread"' in settings


def test_leaving_keeps_the_definitions_and_nothing_else(release: ControlPlane) -> None:
    """With them the claims of the users stay; objects of ours that stayed would refuse pods."""
    _helm(release, "uninstall", "partage", "--no-hooks")
    kinds = {(made["kind"], made["apiVersion"]) for made in rendering.objects()}
    assert {kind for kind, version in kinds if _ours(release, kind, version)} == {definitions.KIND}


def test_what_to_do_next_is_said(plane: ControlPlane) -> None:
    """The notes name a node's label, a first pod, the test, and what is left to choose."""
    said = _helm(plane, "install", "partage", str(helm.CHART), "--dry-run=client")
    assert "kubectl label node NODE partage.dev/agent=enabled" in said
    assert "helm test partage -n partage-system" in said
    assert "partage.dev/memory-percent" in said
    assert "--set guard.mode=deny" in said
    assert "`helm uninstall` leaves the pods, and the definitions of claims" in said
    existing = ("--set", "scheduler.mode=existing")
    said = _helm(plane, "install", "partage", str(helm.CHART), "--dry-run=client", *existing)
    assert "partage scheduler-config --service partage-system/partage-extender" in said
    by_hand = ("--set", "cleanup.enabled=false")
    said = _helm(plane, "install", "partage", str(helm.CHART), "--dry-run=client", *by_hand)
    assert "partage cleanup cluster --remove --namespace partage-system" in said


def test_programs_have_their_rights_where_they_need_them(release: ControlPlane) -> None:
    """In the namespace of the release; and the lists of unhealthy cards in kube-system."""
    plane, leases = release, {"group": "coordination.k8s.io", "namespace": SPACE}
    assert may(plane, "partage-extender", "update", "leases", name="partage-extender", **leases)
    assert not may(plane, "partage-extender", "update", "leases", name="other", **leases)
    assert may(plane, "partage-extender", "list", "configmaps", namespace="kube-system")
    assert not may(plane, "partage-extender", "list", "configmaps", namespace=SPACE)
    for secret in ("partage-extender-tls", "partage-scheduler-tls"):
        assert may(plane, "partage-extender", "get", "secrets", name=secret, namespace=SPACE)
    assert not may(plane, "partage-extender", "get", "secrets", namespace=SPACE)
    assert not may(plane, "partage-admission", "get", "secrets", namespace="kube-system")
    assert may(plane, "partage-agent", "patch", "configmaps", namespace="kube-system")
    assert not may(plane, "partage-scheduler", "get", "secrets", namespace=SPACE)


def test_the_scheduler_works_with_its_account_and_its_configuration(
    release: ControlPlane, tmp_path: Path
) -> None:
    """kube-scheduler may lead by a lease of its own, and binds the pods that name it."""
    plane, kubeconfig = release, tmp_path / "kubeconfig"
    lease = {"group": "coordination.k8s.io", "namespace": SPACE, "name": "partage-scheduler"}
    assert may(plane, "partage-scheduler", "update", "leases", **lease)
    account = service_accounts.kubeconfig(plane, "partage-scheduler", namespace=SPACE)
    kubeconfig.write_text(account)
    text = plane.client.get("ConfigMap", "partage-scheduler", SPACE)["data"]
    configuration = yaml.safe_load(text["scheduler-config.yaml"])
    configuration["clientConnection"] = {"kubeconfig": str(kubeconfig)}
    del configuration["extenders"][0]["tlsConfig"]  # names files of its pod
    plane.start_scheduler(yaml.safe_dump(configuration))
    plane.client.create(objects.node("n1", cards=1, card_units=16))
    pod = objects.pod("plain")
    pod["spec"]["schedulerName"] = "partage-scheduler"
    plane.client.create(pod)
    making.eventually(lambda: plane.client.get("Pod", "plain")["spec"].get("nodeName"))


def _helm(plane: ControlPlane, *arguments: str) -> str:
    return helm.run(*arguments, "--namespace", SPACE, kubeconfig=plane.kubeconfig)


def _ours(plane: ControlPlane, kind: str, version: str) -> list[api.Object]:
    where = api.path(kind, "", "", version=version)
    query = "?labelSelector=app.kubernetes.io/part-of=partage"
    made: list[api.Object] = plane.client.call("GET", where + query)["items"]
    # In another namespace they are of the plain manifests, which other tests have applied.
    return [one for one in made if one["metadata"].get("namespace", SPACE) == SPACE]


def _namespace(name: str) -> api.Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
