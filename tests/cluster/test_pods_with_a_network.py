"""Pods on a network: Services, names, webhooks, the API server and a scheduler, all by pods."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster import api, child_processes, objects
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.network import network
from cluster.node import node, program_image
from cluster.node.node import Node
from cluster.programs import kubernetes_build
from tests.cluster import network_server
from tests.cluster.making import events, eventually
from tests.kube import kubeconfigs
from tests.leaving_out import leave_out

Nodes = tuple[Node, Node]

HELPER = "helper"  # a Deployment with its Service, over HTTPS
WEB = "web"  # the same over HTTP
ROOT = Path(__file__).parents[2]

# As strict as the pods of a chart that wants no rights.
STRICT_POD = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
STRICT = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_PROGRAMS = dict.fromkeys(["/usr", "/lib", "/lib64", sys.base_prefix, str(ROOT)])
_PYTHON = str(Path(sys.executable).resolve())
# An HTTP request by nothing but a shell.
_GET = 'exec 3<>/dev/tcp/$0/80; printf "GET / HTTP/1.0\\r\\n\\r\\n" >&3; tail -n1 <&3'


@pytest.fixture(scope="module")
def nodes(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two nodes on a network, with a scheduler."""
    check_machine()
    folder = tmp_path_factory.mktemp("network")
    with ControlPlane(folder / "control-plane", controllers=True, networked=True) as plane:
        started = (Node(plane, folder / "1", 1), Node(plane, folder / "2", 2, cards=""))
        try:
            node.start_all(started)
            plane.start_scheduler(scheduler_config.plain(plane.kubeconfig))
            yield started
        finally:
            for real_node in started:
                real_node.stop()


def check_machine() -> None:
    """Leave the tests out where no such network can be made."""
    try:
        node.check_machine()
        network.check_machine()
        kubernetes_build.ensure_runc()
        kubernetes_build.ensure_kube_proxy()
        kubernetes_build.ensure_coredns()
    except (node.CannotRun, network.CannotConnect, kubernetes_build.CannotBuild) as error:
        leave_out("a network of pods", error)


@pytest.fixture(scope="module")
def client_pod(nodes: Nodes) -> str:
    """A pod on the first node, from which others are reached."""
    return _running(nodes[0], objects.running_pod("client", node_name=nodes[0].name))


@pytest.fixture(scope="module")
def authority(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Who vouches for the helper, which runs; base64, as objects have it."""
    made = kubeconfigs.Certificates(tmp_path_factory.mktemp("certificates"))
    made.issue("server", names=f"DNS:{HELPER}.default.svc")
    files = {"tls.crt": made.folder / "server.crt", "tls.key": made.folder / "server.key"}
    client = nodes[0].plane.client
    data = {name: kubeconfigs.base64_of(path) for name, path in files.items()}
    client.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": HELPER}, "data": data}
    )
    deployment, service = _served(HELPER, port=443, replicas=1, certificates="/tls")
    client.create(deployment)
    client.create(service)
    _available(nodes[0].plane, HELPER)
    return kubeconfigs.base64_of(made.authority)


def test_a_service_is_reached_by_its_name_and_its_address(nodes: Nodes, client_pod: str) -> None:
    """From a pod by name, from a node by address: both pods answer, and after one is deleted."""
    plane = nodes[0].plane
    deployment, service = _served(WEB, port=80, replicas=2)
    plane.client.create(deployment)
    address = plane.client.create(service)["spec"]["clusterIP"]
    before = _available(plane, WEB)
    assert {pod["spec"]["nodeName"] for pod in before.values()} == {one.name for one in nodes}

    def answered() -> set[str]:
        by_name = [_from_pod(nodes[0], client_pod, f"{WEB}.default.svc") for _ in range(8)]
        by_address = [nodes[1].run("bash", "-c", _GET, address).stdout for _ in range(8)]
        return {*by_name, *by_address}

    eventually(lambda: answered() == before.keys())
    gone = min(before)
    plane.client.delete("Pod", gone, grace_seconds=0)
    after = _available(plane, WEB)
    assert gone not in after
    eventually(lambda: answered() == after.keys())


def test_a_pod_reaches_itself_by_its_service(nodes: Nodes) -> None:
    """Which only works if its node sends the answer back the way the question came."""
    deployment, service = _served("alone", port=80, replicas=1)
    plane = nodes[0].plane
    plane.client.create(deployment)
    plane.client.create(service)
    [(name, pod)] = _available(plane, "alone").items()
    [its_node] = [one for one in nodes if one.name == pod["spec"]["nodeName"]]
    eventually(lambda: _from_pod(its_node, name, "alone") == name)


def test_the_api_server_asks_a_webhook_in_a_pod(nodes: Nodes, authority: str) -> None:
    """By its Service; what the pod refuses is refused with its words."""
    client = nodes[0].plane.client
    made = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m", "labels": {"a": "b"}},
    }
    client.create(_webhook(authority))

    said = [""]

    def is_refused() -> bool:
        try:
            client.call("POST", f"{api.path('ConfigMap')}?dryRun=All", made)
        except api.ApiError as error:
            said.append(str(error))
        return network_server.REFUSED in said[-1]

    try:
        eventually(is_refused, why=lambda: said[-1])
    finally:
        client.delete("ValidatingWebhookConfiguration", HELPER)


def test_a_pod_talks_to_the_api_server_as_its_service_account(
    nodes: Nodes, programs: Path, tmp_path: Path
) -> None:
    """By the address in its environment and the token it was given, without any other right."""
    program_image.write("kubectl", tmp_path / "kubectl.tar")
    nodes[1].import_archive(tmp_path / "kubectl.tar", name="localhost/client:1")
    container = objects.container("kubectl", "auth", "whoami", "-o", "yaml")
    container |= {"image": "localhost/client:1", "securityContext": STRICT}
    pod = objects.running_pod(
        "asks",
        container,
        node_name=nodes[1].name,
        automountServiceAccountToken=True,
        restartPolicy="Never",
        securityContext=STRICT_POD,
    )
    said = _said(nodes[1], pod)
    user = yaml.safe_load(said)["status"]["userInfo"]["username"]
    assert user == "system:serviceaccount:default:default", said


def test_a_second_scheduler_in_a_pod_asks_an_extender_in_another(
    nodes: Nodes, authority: str, tmp_path: Path
) -> None:
    """The stock program, by HTTPS and the name of a Service; pods go where the extender says."""
    plane, archive = nodes[0].plane, tmp_path / "scheduler.tar"
    program_image.write("kube-scheduler", archive)
    nodes[0].import_archive(archive)
    for made in _second_scheduler(nodes[0].name, authority):
        plane.client.create(made)
    pod = objects.running_pod("second", schedulerName="second")
    plane.client.create(pod)
    eventually(
        lambda: plane.client.get("Pod", "second")["spec"].get("nodeName"),
        why=lambda: f"{events(plane, 'second')}\n{nodes[0].logs('scheduler', 'main')}",
    )
    _until_running(plane, "second")
    assert plane.client.get("Pod", "second")["spec"]["nodeName"] == nodes[1].name


def test_kubectl_reaches_pods_of_all_nodes(nodes: Nodes, client_pod: str, programs: Path) -> None:
    """The API server finds the kubelets by the nodes' addresses."""
    kubeconfig = f"--kubeconfig={nodes[0].plane.kubeconfig}"
    command = [str(programs / "kubectl"), kubeconfig, "exec", client_pod, "--", "echo", "in"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == ("in\n", 0), done.stderr


def test_a_container_gets_all_cards_by_nvidias_runtime(nodes: Nodes) -> None:
    """As an agent in a pod does; and it finds what is the node's in the usual places."""
    cards = nodes[0].cards
    assert cards is not None
    nodes[0].plane.client.create(objects.runtime_class("nvidia"))
    container = objects.container("sh", "-c", "gpu info; ls /etc/cdi") | {
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "volumeMounts": [{"name": "cdi", "mountPath": "/etc/cdi", "readOnly": True}],
    }
    pod = objects.running_pod(
        "driven",
        container,
        node_name=nodes[0].name,
        runtimeClassName="nvidia",
        restartPolicy="Never",
        volumes=[{"name": "cdi", "hostPath": {"path": "/var/run/cdi", "type": "Directory"}}],
    )
    seen = _said(nodes[0], pod).splitlines()
    assert [line.split()[0] for line in seen] == [*cards.uuids, "nvidia.yaml"]


def test_a_node_comes_back_to_the_network(nodes: Nodes) -> None:
    """After its power failed, its new pods reach others as before."""
    nodes[1].stop()
    nodes[1].start()
    name = _running(nodes[1], objects.running_pod("back", node_name=nodes[1].name))
    connect = "exec 3<>/dev/tcp/kubernetes.default.svc/443"
    eventually(lambda: nodes[1].exec(name, "main", "bash", "-c", connect).returncode == 0)


def test_nothing_of_it_is_in_the_machines_network_nor_stays(programs: Path, tmp_path: Path) -> None:
    """Also if who started it is killed: interfaces, routes and tables go with their namespaces."""
    check_machine()
    before = _of_machine()
    with subprocess.Popen(
        [sys.executable, "-c", _START, tmp_path], stdout=subprocess.PIPE, cwd=ROOT
    ) as starter:
        assert starter.stdout is not None
        namespaces = [_namespace(int(pid)) for pid in starter.stdout.readline().split()]
        assert len({*namespaces, _namespace(os.getpid())}) == 4  # hub, node and pod, and ours
        assert _of_machine() == before
        starter.kill()
    eventually(lambda: not _living(namespaces))
    assert _of_machine() == before


# A networked control plane and a node, with a pod that runs; prints a process of each.
_START = """
import pathlib, signal, sys, time
from cluster import child_processes, objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.node.node import Node

folder = pathlib.Path(sys.argv[1])
plane = ControlPlane(folder / "plane", networked=True).start()
node = Node(plane, folder / "node", 1, cards="")
node.start()
pod = plane.client.create(objects.running_pod("doomed", node_name=node.name))
while plane.client.get("Pod", "doomed")["status"]["phase"] != "Running":
    time.sleep(0.1)
shim = node.shim("doomed")
of_node = child_processes.children(node.pids()["first"])[0]
print(plane.pids()["hub"], of_node, child_processes.children(shim)[0], flush=True)
signal.pause()
"""


def _of_machine() -> tuple[str, str, str]:
    """The interfaces, routes and tables of the machine's own network."""
    commands = (
        ["ip", "-brief", "link"],
        ["ip", "route"],
        ["nft", "--stateless", "list", "ruleset"],
    )
    links, routes, tables = (
        subprocess.run(
            command, capture_output=True, text=True, check=True, env=network.environment()
        ).stdout
        for command in commands
    )
    return links, routes, tables


def _namespace(pid: int) -> int:
    return Path(f"/proc/{pid}/ns/net").stat().st_ino


def _living(namespaces: list[int]) -> list[int]:
    """The processes that keep one of the network namespaces."""
    living = []
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            if child_processes.runs(pid) and _namespace(pid) in namespaces:
                living.append(pid)
        except OSError:  # it has ended meanwhile
            continue
    return living


def _served(
    name: str, *, port: int, replicas: int, certificates: str = ""
) -> tuple[api.Object, api.Object]:
    """A Deployment of the server, on this machine's Python, and its Service."""
    words = [certificates] if certificates else []
    probe = {"path": "/", "port": 8080, "scheme": "HTTPS" if certificates else "HTTP"}
    script = str(Path(network_server.__file__))
    container = objects.container(_PYTHON, "-I", "-S", script, "8080", *words)
    container |= {
        "readinessProbe": {"httpGet": probe, "periodSeconds": 1},
        "securityContext": STRICT,
    }
    body = objects.running_pod(
        "", container, securityContext={"seccompProfile": {"type": "RuntimeDefault"}}
    )
    places = [(f"program-{number}", path) for number, path in enumerate(_PROGRAMS)]
    volumes = [{"name": volume, "hostPath": {"path": path}} for volume, path in places]
    mounts = [{"name": volume, "mountPath": path, "readOnly": True} for volume, path in places]
    if certificates:
        volumes.append({"name": "tls", "secret": {"secretName": name}})
        mounts.append({"name": "tls", "mountPath": certificates, "readOnly": True})
    container["volumeMounts"] = mounts
    labels = {"app": name}
    spec = body["spec"] | {"volumes": volumes, "terminationGracePeriodSeconds": 0}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": labels, "ports": [{"port": port, "targetPort": 8080}]},
    }
    return deployment, service


def _webhook(authority: str) -> api.Object:
    service = {"name": HELPER, "namespace": api.DEFAULT, "path": "/validate"}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    webhook = {
        "name": f"{HELPER}.partage.dev",
        "clientConfig": {"service": service, "caBundle": authority},
        "rules": [rule],
        "objectSelector": {"matchLabels": {"a": "b"}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": HELPER},
        "webhooks": [webhook],
    }


def _second_scheduler(node_name: str, authority: str) -> list[api.Object]:
    """A scheduler in a pod of the node, with its rights and an extender."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": "second"}],
        "extenders": [
            {
                "urlPrefix": f"https://{HELPER}.default.svc:443",
                "filterVerb": "filter",
                "enableHTTPS": True,
                "tlsConfig": {"caData": authority},
                "nodeCacheCapable": True,
            }
        ],
    }
    subject = {"kind": "ServiceAccount", "name": "scheduler", "namespace": api.DEFAULT}
    roles = ("system:kube-scheduler", "system:volume-scheduler")
    bindings = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"second-{role.rpartition(':')[2]}"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role,
            },
            "subjects": [subject],
        }
        for role in roles
    ]
    container = {
        "name": "main",
        "image": program_image.name("kube-scheduler"),
        "command": ["kube-scheduler", "--config=/etc/scheduler/config.yaml"],
        "securityContext": STRICT,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/scheduler", "readOnly": True}],
    }
    pod = objects.running_pod(
        "scheduler",
        container,
        node_name=node_name,
        serviceAccountName="scheduler",
        automountServiceAccountToken=True,
        securityContext=STRICT_POD,
        volumes=[{"name": "config", "configMap": {"name": "scheduler"}}],
    )
    meta = {"name": "scheduler"}
    settings = {"config.yaml": yaml.safe_dump(configuration)}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": settings},
        *bindings,
        pod,
    ]


def _from_pod(where: Node, pod: str, host: str) -> str:
    return where.exec(pod, "main", "bash", "-c", _GET, host).stdout


def _said(where: Node, pod: api.Object) -> str:
    """What the container of a pod writes until it ends."""
    client, name = where.plane.client, pod["metadata"]["name"]
    client.create(pod)
    eventually(
        lambda: client.get("Pod", name)["status"]["phase"] in ("Succeeded", "Failed"),
        why=lambda: str(events(where.plane, name)),
    )
    return where.logs(name, "main")


def _running(where: Node, pod: api.Object) -> str:
    """Create a pod and wait until it runs; its name."""
    where.plane.client.create(pod)
    name: str = pod["metadata"]["name"]
    _until_running(where.plane, name)
    return name


def _until_running(plane: ControlPlane, name: str) -> None:
    eventually(
        lambda: plane.client.get("Pod", name)["status"]["phase"] == "Running",
        why=lambda: str(events(plane, name)),
    )


def _available(plane: ControlPlane, deployment: str) -> dict[str, api.Object]:
    """The pods of a Deployment by name, once as many as there should be are ready, and no more."""

    def complete() -> dict[str, api.Object] | None:
        wanted_number = plane.client.get("Deployment", deployment)["spec"]["replicas"]
        pods = plane.client.list_all("Pod", selector=f"app={deployment}")
        ready = {pod["metadata"]["name"]: pod for pod in pods if _is_ready(pod)}
        return ready if len(pods) == len(ready) == wanted_number else None

    pods: dict[str, api.Object] = eventually(complete, why=lambda: _pods(plane, deployment))
    return pods


def _pods(plane: ControlPlane, deployment: str) -> str:
    pods = plane.client.list_all("Pod", selector=f"app={deployment}")
    return str([(pod["status"], events(plane, pod["metadata"]["name"])) for pod in pods])


def _is_ready(pod: api.Object) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
