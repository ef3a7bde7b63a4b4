"""The files under deploy/, on a real API server: accepted, and with the least of rights enough."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from cluster import api, child_processes, objects
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.node.node import Node
from cluster.partage_processes import extender_process
from native import parts
from partage.core import cards
from partage.dialects import contract, registry
from tests.cluster import escapes, installing, making, service_accounts
from tests.cluster.making import MEMORY

EXTENDER, AGENT, ADMISSION = "extender.yaml", "agent.yaml", "admission.yaml"
WEBHOOKS, POLICIES = "admission-webhooks.yaml", "guard.yaml"
GUARD = "agent-guard.yaml"
DROP_IN, DOCTOR, CLEANUP = "gpushare-drop-in.yaml", "doctor.yaml", "cleanup.yaml"
PLUGIN = "gpushare-device-plugin"
SYSTEM = installing.SYSTEM
SIMSMI = parts.LIB / "simulated" / "simsmi"


@pytest.mark.parametrize(
    "name",
    [EXTENDER, AGENT, ADMISSION, WEBHOOKS, POLICIES, GUARD, DROP_IN, DOCTOR, CLEANUP],
)
def test_manifests_are_accepted_without_a_word_that_nobody_knows(
    clean_cluster: ControlPlane, name: str
) -> None:
    """An API server that is strict refuses what it would drop in silence otherwise."""
    for manifest in installing.manifests(name):
        meta = manifest["metadata"] | {"name": f"{manifest['metadata']['name']}-tried"}
        space, version = meta.get("namespace", ""), manifest["apiVersion"]
        where = api.path(manifest["kind"], "", space, version=version)
        body = manifest | {"metadata": meta}
        if manifest["kind"] == "Service":  # its port may be taken by then
            body["spec"]["ports"][0].pop("nodePort", None)
        clean_cluster.client.call("POST", f"{where}?dryRun=All&fieldValidation=Strict", body)


def test_the_extender_works_with_the_rights_of_its_service_account(
    clean_cluster: ControlPlane, tmp_path: Path
) -> None:
    """It reads, binds, leads and wakes the scheduler, with nothing more than the manifest gives."""
    plane = clean_cluster
    installing.apply(plane, installing.manifests(EXTENDER))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(service_accounts.kubeconfig(plane, "partage-extender"))
    extender = extender_process.Extender(tmp_path, kubeconfig, options=("--leader-elect",))
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
        assert "forbidden" not in extender.log(lines=1000)
    finally:
        extender.close()


def test_in_gpushares_place_it_works_with_gpushares_rights_and_says_what_is_missing(
    clean_cluster: ControlPlane, tmp_path: Path
) -> None:
    """The role of its manifest: no ConfigMaps, no namespaces, no patch of nodes or of pods."""
    plane = clean_cluster
    for manifest in installing.manifests(DROP_IN, component="gpushare-schd-extender"):
        if manifest["kind"] == "ClusterRole":
            nodes, pods, binding, *_others = manifest["rules"]
            nodes["verbs"].remove("patch")
            manifest["rules"] = [nodes, pods, binding]
        plane.client.create(manifest)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(service_accounts.kubeconfig(plane, "gpushare-schd-extender"))
    extender = extender_process.Extender(tmp_path, kubeconfig)
    try:
        extender.start()
        plane.start_scheduler(scheduler_config.gpushare(plane.kubeconfig, port=extender.port))
        plane.client.create(objects.node("n1", cards=2, card_units=16))
        plane.client.create(objects.pod("p", {MEMORY: 10}))
        making.bound(plane, "p")
        said = extender.log(lines=1000)
        assert "grants also cards that are listed as unhealthy there: allow list and watch" in said
        assert "the totals of namespaces do not hold, and nobody is limited: allow list" in said
        assert extender.metric("partage_namespaces_read") == 0
    finally:
        extender.close()


def test_in_gpushares_place_programs_have_the_rights_of_the_chart() -> None:
    """That file is written by hand, and must not lack what the chart's programs came to need."""
    assert _rights(AGENT) == _rights(DROP_IN, PLUGIN)
    assert _rights(EXTENDER, roles=("ClusterRole",)) <= _rights(DROP_IN, "gpushare-schd-extender")
    first, second = (_daemon_set(name)["spec"]["template"]["spec"] for name in (AGENT, DROP_IN))
    assert _paths(first) == _paths(second)
    (one,), (other,) = first["containers"], second["containers"]
    assert one["securityContext"] == other["securityContext"]
    assert first["hostPID"] is second["hostPID"] is True


def test_the_extenders_service_account_may_do_nothing_else(clean_cluster: ControlPlane) -> None:
    """Not read a secret, not delete a pod, not write a ConfigMap."""
    installing.apply(clean_cluster, installing.manifests(EXTENDER))
    for verb, resource in (
        ("get", "secrets"),
        ("delete", "pods"),
        ("patch", "pods"),
        ("create", "pods"),
        ("update", "configmaps"),
        ("delete", "nodes"),
    ):
        assert not service_accounts.may(clean_cluster, "partage-extender", verb, resource), (
            verb,
            resource,
        )


def test_the_doctors_service_account_only_reads(clean_cluster: ControlPlane) -> None:
    """It sees what runs, and neither keys nor the configurations of others; it changes nothing."""
    installing.apply(clean_cluster, installing.manifests(DOCTOR))
    may = functools.partial(service_accounts.may, clean_cluster, "partage-doctor")
    assert may("list", "pods", namespace="")
    assert may("get", "configmaps", name="partage-scheduler")
    assert not may("get", "secrets")
    assert not may("get", "configmaps", name="others")
    for resource in ("nodes", "pods", "configmaps", "secrets", "events", "pods/exec"):
        for verb in ("create", "update", "patch", "delete"):
            assert not may(verb, resource), (verb, resource)


def test_the_cleanups_service_account_removes_what_is_partages(clean_cluster: ControlPlane) -> None:
    """By name where rights know names: no Secret of others, no pod, no node itself."""
    rights = [m for m in installing.manifests(CLEANUP) if m["kind"] not in {"DaemonSet", "Job"}]
    installing.apply(clean_cluster, rights)
    may = functools.partial(service_accounts.may, clean_cluster, "partage-cleanup")
    assert may("patch", "nodes", namespace="")
    assert may("delete", "secrets", name="partage-extender-tls")
    assert not may("delete", "secrets", name="other")
    assert not may("list", "secrets")
    for resource in ("pods", "nodes", "namespaces", "daemonsets", "customresourcedefinitions"):
        assert not may("delete", resource), resource
    for resource in ("pods", "configmaps", "secrets", "pods/exec"):
        assert not may("create", resource), resource


@pytest.mark.parametrize(("name", "account"), [(AGENT, "partage-agent"), (DROP_IN, PLUGIN)])
def test_the_agents_service_account_may_do_nothing_else(
    clean_cluster: ControlPlane, name: str, account: str
) -> None:
    """Not read a secret, not bind, make or delete a pod, not exec, no ConfigMaps elsewhere."""
    installing.apply(clean_cluster, installing.manifests(name, _component(name)))
    for verb, resource in (
        ("get", "secrets"),
        ("delete", "pods"),
        ("create", "pods"),
        ("create", "pods/binding"),
        ("create", "pods/exec"),
        ("get", "nodes/proxy"),
        ("delete", "nodes"),
        ("delete", "configmaps"),
        ("list", "configmaps"),
    ):
        assert not service_accounts.may(clean_cluster, account, verb, resource), (verb, resource)
    assert service_accounts.may(clean_cluster, account, "patch", "configmaps")
    assert not service_accounts.may(
        clean_cluster, account, "patch", "configmaps", namespace="default"
    )


@pytest.mark.parametrize(("name", "account"), [(AGENT, "partage-agent"), (DROP_IN, PLUGIN)])
def test_the_agent_runs_as_its_manifest_says(
    nodes_with_image: tuple[Node, Node],
    clean_nodes: tuple[Node, Node],
    tmp_path: Path,
    name: str,
    account: str,
) -> None:
    """A pod with one capability and its own account: it fences, marks, ends, and tells problems."""
    node, plane = clean_nodes[0], clean_nodes[0].plane
    with _agent_in_a_pod(node, name, tmp_path) as agent:
        assert agent["spec"]["serviceAccountName"] == account
        assert agent["spec"]["hostPID"] is True
        assert _capabilities(agent) == {"drop": ["ALL"], "add": ["KILL"]}
        plane.client.create(_tenant("tenant", _where(agent)))
        making.eventually(lambda: _is_marked(plane, "tenant"))
        assert node.exec("tenant", "main", "gpu", "try", "2500").stdout == "held\n"
        assert node.exec("tenant", "main", "gpu", "try", "3072").returncode == 1
        plane.client.create(escapes.config_map(tmp_path))
        plane.client.create(escapes.pod("greedy", {MEMORY: 2}, nodeSelector=_where(agent)))
        making.eventually(lambda: _is_marked(plane, "greedy"))
        assert node.exec("greedy", "main", *escapes.renamed(7000)).returncode == 128 + 9
        making.eventually(lambda: "it was ended" in "".join(making.events(plane, "greedy")))
        plane.client.delete("ConfigMap", escapes.NAME)
        _simsmi(node, "xid", "0", "48")
        making.eventually(lambda: "is unhealthy" in "".join(making.events(plane, "tenant")))
        making.eventually(lambda: _unhealthy_list(plane, node) == "0")
        _simsmi(node, "heal", "0")
        making.eventually(lambda: _unhealthy_list(plane, node) == "", patience_s=90)
        (container,) = agent["spec"]["containers"]
        log = node.logs(agent["metadata"]["name"], container["name"], namespace=SYSTEM)
        assert "starts: cards" in log
        assert "forbidden" not in log, log


def test_the_schedulers_configuration_names_every_resource_and_is_accepted(
    clean_cluster: ControlPlane,
) -> None:
    """With nothing changed but where kube-scheduler finds its files."""
    text = (installing.DEPLOY / "scheduler-config.yaml").read_text()
    (extender,) = yaml.safe_load(text)["extenders"]
    assert sorted(r["name"] for r in extender["managedResources"]) == list(
        scheduler_config.resources()
    )
    ignored = {r["name"] for r in extender["managedResources"] if r["ignoredByScheduler"]}
    assert ignored == set(scheduler_config.resources()) - _on_nodes()
    read = yaml.safe_load(text)
    read["clientConnection"]["kubeconfig"] = str(clean_cluster.kubeconfig)
    del read["extenders"][0]["tlsConfig"]  # names files of a control plane's machine
    clean_cluster.start_scheduler(yaml.safe_dump(read))
    clean_cluster.stop_scheduler()


def test_an_agent_changes_its_own_node_and_nothing_that_pods_run(
    clean_cluster: ControlPlane, tmp_path: Path
) -> None:
    """With the guard: by the node that its token names, and annotations only."""
    plane = clean_cluster
    installing.apply(plane, (*installing.manifests(AGENT), *installing.manifests(GUARD)))
    plane.client.create_all(objects.nodes(2))
    agent = objects.pod("agent-1", namespace=SYSTEM, node_name="node-1")
    agent["spec"]["serviceAccountName"] = "partage-agent"
    made = plane.client.create(agent)
    plane.client.create_all(objects.pod(f"p{i}", node_name=f"node-{i}") for i in (1, 2))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(service_accounts.kubeconfig(plane, "partage-agent", made))
    client = api.Api.of(kubeconfig)
    note: api.Object = {"metadata": {"annotations": {"partage.dev/tried": "yes"}}}
    making.eventually(lambda: _refused(client, "Pod", "p2", note))  # when the policy is in force
    assert _refused(client, "Node", "node-2", note)
    other = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    assert _refused(client, "Pod", "p1", other)
    assert not _refused(client, "Pod", "p1", note)
    assert not _refused(client, "Node", "node-1", note)
    client.close()


def _refused(client: api.Api, kind: str, name: str, change: api.Object) -> bool:
    """Whether the guard does not let a change pass."""
    try:
        client.patch(kind, name, change, how=api.STRATEGIC)
    except api.ApiError as error:
        if "ValidatingAdmissionPolicy 'partage-agent'" not in str(error):
            raise
        return True
    return False


def _on_nodes() -> set[str]:
    """All resources that nodes have by their agents in some dialect, by plugins or without."""
    node = cards.Node(name="n", cards=(cards.Card(uuid="GPU-0", index=0, memory_mib=16384),))
    names = [dialect.name for dialect in registry.DIALECTS]
    return {*registry.offered(node, contract.Settings(), names), *registry.reported(node, names)}


@contextlib.contextmanager
def _agent_in_a_pod(node: Node, name: str, folder: Path) -> Iterator[api.Object]:
    """The agent of a manifest on a node, with an extender and a scheduler; its pod."""
    plane, port = node.plane, child_processes.Port()
    extender = extender_process.Extender(folder, plane.kubeconfig)
    made = {manifest["kind"]: manifest for manifest in installing.manifests(name, _component(name))}
    daemon_set = installing.on_node(made.pop("DaemonSet"), node, port.number)
    selector = daemon_set["spec"]["template"]["spec"]["nodeSelector"]
    try:
        extender.start()
        _schedule(plane, name, extender.port)
        installing.apply(plane, (*made.values(), *installing.manifests(GUARD)))
        plane.client.patch("Node", node.name, {"metadata": {"labels": selector}})
        plane.client.create(daemon_set)
        yield making.eventually(lambda: _ready(plane, daemon_set), patience_s=90)
    finally:
        _simsmi(node, "reset")
        plane.stop_scheduler()
        _uninstall(plane, daemon_set, node)
        extender.close()
        port.release()


def _rights(
    name: str, component: str = "", roles: Sequence[str] = ("ClusterRole", "Role")
) -> set[tuple[str, str, str]]:
    """Groups, resources and verbs that the roles of a file allow."""
    return {
        (group, resource, verb)
        for manifest in installing.manifests(name, component)
        if manifest["kind"] in roles
        for rule in manifest["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _daemon_set(name: str) -> api.Object:
    (made,) = [m for m in installing.manifests(name) if m["kind"] == "DaemonSet"]
    return made


def _paths(spec: api.Object) -> set[tuple[str, str]]:
    return {(v["hostPath"]["path"], v["hostPath"]["type"]) for v in spec["volumes"]}


def _component(name: str) -> str:
    return PLUGIN if name == DROP_IN else ""


def _schedule(plane: ControlPlane, name: str, port: int) -> None:
    """With gpushare's configuration, or with ours."""
    if name == DROP_IN:
        plane.start_scheduler(scheduler_config.gpushare(plane.kubeconfig, port=port))
    else:
        making.schedule(plane, port, advertised=_on_nodes())


def _ready(plane: ControlPlane, daemon_set: api.Object) -> api.Object | None:
    """The one pod of a DaemonSet, once it is ready."""
    labels = daemon_set["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{name}={text}" for name, text in labels.items())
    pods = plane.client.list_all("Pod", SYSTEM, selector=selector)
    states = [status for pod in pods for status in pod["status"].get("containerStatuses", [])]
    return pods[0] if len(pods) == 1 and states and states[0]["ready"] else None


def _where(agent: api.Object) -> dict[str, str]:
    selector: dict[str, str] = agent["spec"]["nodeSelector"]
    return selector


def _capabilities(agent: api.Object) -> dict[str, list[str]]:
    capabilities: dict[str, list[str]] = agent["spec"]["containers"][0]["securityContext"][
        "capabilities"
    ]
    return capabilities


def _tenant(name: str, selector: dict[str, str]) -> api.Object:
    main = objects.container(limits={MEMORY: 3})
    return objects.running_pod(name, main, nodeSelector=selector)


def _is_marked(plane: ControlPlane, name: str) -> bool:
    """Whether it runs, and its annotations say that it has its card, behind a fence."""
    pod = plane.client.get("Pod", name)
    written = making.written(pod)
    return (
        pod["status"].get("phase") == "Running"
        and written.get("ALIYUN_COM_GPU_MEM_ASSIGNED") == "true"
        and making.grant(pod)["containers"][0].get("fence") == "hook"
    )


def _simsmi(node: Node, *arguments: str) -> None:
    subprocess.run([SIMSMI, *arguments], env={**os.environ, **node.environment}, check=True)


def _unhealthy_list(plane: ControlPlane, node: Node) -> str:
    try:
        unhealthy = plane.client.get("ConfigMap", f"unhealthy-gpu-{node.name}", SYSTEM)
    except api.ApiError:
        return ""
    return str(unhealthy["data"]["gpus"])


def _uninstall(plane: ControlPlane, daemon_set: api.Object, node: Node) -> None:
    """Leave the node to others, without the DaemonSet and its label."""
    where = api.path("DaemonSet", daemon_set["metadata"]["name"], SYSTEM, version="apps/v1")
    plane.client.call("DELETE", where)
    selector = daemon_set["spec"]["template"]["spec"]["nodeSelector"]
    gone: api.Object = {"metadata": {"labels": dict.fromkeys(selector)}}
    plane.client.patch("Node", node.name, gone)
    making.eventually(lambda: _ready(plane, daemon_set) is None)
