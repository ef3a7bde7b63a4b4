"""The fault proxy: what it breaks it breaks as told, and all else passes through unharmed."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import time
import urllib.parse
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest
import yaml

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.faults import fault_proxy, faults
from cluster.partage_processes import extender_process
from tests.cluster import making

BINDINGS = faults.BINDINGS
GONE = (http.client.HTTPException, OSError)  # what a client gets in place of an answer
FEW = 20


@pytest.fixture
def between(clean_cluster: ControlPlane, tmp_path: Path) -> Iterator[fault_proxy.FaultProxy]:
    """A proxy in front of a clean cluster that has one node."""
    clean_cluster.client.create(objects.node("n"))
    with fault_proxy.FaultProxy(clean_cluster, tmp_path) as started:
        yield started


@pytest.fixture
def client(between: fault_proxy.FaultProxy) -> Iterator[api.Api]:
    """A client that reaches the API server through the proxy."""
    made = api.Api.of(between.kubeconfig)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("line", "request_of"),
    [
        ("GET /api/v1/pods?limit=500", ("list", "pods", "")),
        ("GET /api/v1/pods?watch=1&resourceVersion=7", ("watch", "pods", "")),
        ("GET /api/v1/namespaces/a/pods/p", ("get", "pods", "p")),
        ("POST /api/v1/namespaces/a/pods", ("create", "pods", "")),
        ("POST /api/v1/namespaces/a/pods/p/binding", ("create", "pods/binding", "p")),
        ("PATCH /api/v1/nodes/n/status", ("patch", "nodes/status", "n")),
        ("DELETE /api/v1/namespaces/a/pods", ("deletecollection", "pods", "")),
        ("DELETE /api/v1/namespaces/a/pods/p", ("delete", "pods", "p")),
        ("GET /api/v1/namespaces/a", ("get", "namespaces", "a")),
        ("PUT /api/v1/namespaces/a/finalize", ("update", "namespaces/finalize", "a")),
        (
            "PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/x",
            ("update", "leases", "x"),
        ),
        ("GET /readyz", ("get", "/readyz", "")),
        ("GET /api/v1", ("get", "/api/v1", "")),
    ],
)
def test_requests_are_named_as_rbac_names_them(line: str, request_of: tuple[str, ...]) -> None:
    """A request is known by its verb, its resource with the subresource, and its name."""
    method, url = line.split()
    parts = urllib.parse.urlsplit(url)
    assert faults.request_of(method, parts.path, parts.query) == request_of


def test_without_faults_everything_passes_and_is_counted(
    between: fault_proxy.FaultProxy, client: api.Api, clean_cluster: ControlPlane
) -> None:
    """Creating, reading, changing, listing and deleting give what the API server gives."""
    client.create(objects.pod("p"))
    client.patch("Pod", "p", {"metadata": {"annotations": {"a": "b c+ä"}}})
    assert client.get("Pod", "p") == clean_cluster.client.get("Pod", "p")
    assert client.list_all("Pod") == clean_cluster.client.list_all("Pod")
    with pytest.raises(api.ApiError, match="404"):
        client.get("Pod", "nobody")
    client.delete("Pod", "p", grace_seconds=0)
    assert between.count(faults.Requests("create", "pods"), server_status=201) == 1
    assert between.count(faults.Requests("get", "pods"), client_status=404) == 1
    assert between.count(faults.ALL) == 6


def test_a_swallowed_binding_has_happened(
    between: fault_proxy.FaultProxy, client: api.Api, clean_cluster: ControlPlane
) -> None:
    """The client gets no answer, the pod is bound, and the next binding is answered again."""
    _make_pods(clean_cluster, 2)
    between.add(faults.swallow(BINDINGS, times=1))
    with pytest.raises(GONE):
        _bind(client, "p0")
    _bind(client, "p1")
    assert making.node_of(clean_cluster, "p0") == "n"
    assert between.count(BINDINGS, server_status=201, client_status=faults.SILENCE) == 1
    assert between.count(BINDINGS, server_status=201, client_status=201) == 1


def test_a_dropped_binding_has_not_happened(
    between: fault_proxy.FaultProxy, client: api.Api, clean_cluster: ControlPlane
) -> None:
    """The client gets no answer either, but the pod is not bound."""
    _make_pods(clean_cluster, 1)
    between.add(faults.drop(BINDINGS, times=1))
    with pytest.raises(GONE):
        _bind(client, "p0")
    assert making.node_of(clean_cluster, "p0") == ""


def test_one_in_ten_is_misreported_after_it_happened(
    between: fault_proxy.FaultProxy, client: api.Api, clean_cluster: ControlPlane
) -> None:
    """Two of twenty bindings are answered with 504, and all twenty pods are bound."""
    _make_pods(clean_cluster, FEW)
    fault = between.add(faults.misreport(BINDINGS, 504, one_in=10))
    statuses = [_status(client, f"p{number}") for number in range(FEW)]
    assert statuses.count(504) == fault.hits == 2
    assert all(making.node_of(clean_cluster, f"p{number}") for number in range(FEW))
    assert between.count(BINDINGS, server_status=201, client_status=504) == 2


def test_one_in_ten_is_turned_away_before_it_happened(
    between: fault_proxy.FaultProxy, client: api.Api, clean_cluster: ControlPlane
) -> None:
    """Two of twenty bindings are answered with 429, and those two pods are not bound."""
    _make_pods(clean_cluster, FEW)
    between.add(faults.turn_away(BINDINGS, 429, one_in=10))
    statuses = {f"p{number}": _status(client, f"p{number}") for number in range(FEW)}
    unbound = {name for name in statuses if not making.node_of(clean_cluster, name)}
    assert unbound == {name for name, status in statuses.items() if status == 429}
    assert len(unbound) == 2


def test_who_is_turned_away_is_told_when_to_come_back(between: fault_proxy.FaultProxy) -> None:
    """The answer has Retry-After, and a Status that clients can read."""
    between.add(faults.turn_away(faults.ALL, 429, retry_after_s=1))
    with contextlib.closing(_connection(between)) as connection:
        connection.request("GET", "/api/v1/pods")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert b'"reason":"TooManyRequests"' in answer.read()


def test_a_delayed_request_is_answered_late(
    between: fault_proxy.FaultProxy, client: api.Api
) -> None:
    """Only the matching requests wait."""
    fault = between.add(faults.delay(faults.Requests("get", "nodes", "n"), 0.2))
    client.list_all("Node")
    assert fault.hits == 0
    began_s = time.monotonic()
    client.get("Node", "n")
    assert time.monotonic() - began_s >= 0.2


def test_a_held_binding_happens_after_its_client_has_gone(
    between: fault_proxy.FaultProxy, clean_cluster: ControlPlane
) -> None:
    """Nothing happens until the fault ends; then the pod is bound, whoever waits for it."""
    _make_pods(clean_cluster, 1)
    fault = between.add(faults.hold_back(BINDINGS))
    impatient = api.Api.of(between.kubeconfig)
    with futures.ThreadPoolExecutor(1) as pool:
        bound = pool.submit(_bind, impatient, "p0")
        making.eventually(lambda: fault.hits)
        between.cut_connections()
        assert isinstance(bound.exception(), GONE)
    assert making.node_of(clean_cluster, "p0") == ""
    fault.end()
    making.eventually(lambda: making.node_of(clean_cluster, "p0"))
    making.eventually(lambda: between.count(BINDINGS, server_status=201, client_status=0))


def test_a_held_binding_may_come_too_late(
    between: fault_proxy.FaultProxy, clean_cluster: ControlPlane, client: api.Api
) -> None:
    """A pod that was bound meanwhile stays where it is, and the late one is told a conflict."""
    _make_pods(clean_cluster, 1)
    fault = between.add(faults.hold_back(BINDINGS, times=1))
    with futures.ThreadPoolExecutor(1) as pool:
        late = pool.submit(_status, client, "p0")
        making.eventually(lambda: fault.hits)
        _bind(clean_cluster.client, "p0")
        fault.end()
        assert late.result() == 409


def test_watches_pass_while_other_requests_fail(
    between: fault_proxy.FaultProxy, clean_cluster: ControlPlane
) -> None:
    """Each event arrives when it happens, however many there are."""
    between.add(faults.misreport(BINDINGS, 504))
    with contextlib.closing(_connection(between)) as connection:
        stream = _watch(clean_cluster, connection)
        for number in range(3):
            clean_cluster.client.create(objects.pod(f"w{number}"))
            assert f'"name":"w{number}"'.encode() in stream.readline()
        _make_pods(clean_cluster, 200)
        assert all(b'"ADDED"' in stream.readline() for _ in range(200))
    assert between.count(faults.WATCHES, client_status=200) == 1


def test_a_watch_breaks_when_the_server_dies(
    between: fault_proxy.FaultProxy, clean_cluster: ControlPlane, client: api.Api
) -> None:
    """It does not end in good order; and the proxy finds the server's successor by itself."""
    with contextlib.closing(_connection(between)) as connection:
        stream = _watch(clean_cluster, connection)
        clean_cluster.kill_apiserver()
        with pytest.raises(GONE):
            stream.read()
    with pytest.raises(GONE):
        client.list_all("Node")
    clean_cluster.start_apiserver()
    assert len(client.list_all("Node")) == 1


def test_refused_clients_are_let_in_later(
    between: fault_proxy.FaultProxy, client: api.Api, clean_cluster: ControlPlane
) -> None:
    """New connections are refused and kept ones are cut, on a port that stays ours."""
    client.list_all("Node")
    between.refuse_connections()
    with pytest.raises(ConnectionRefusedError):
        client.list_all("Node")
    between.accept_connections()
    assert client.list_all("Node") == clean_cluster.client.list_all("Node")


def test_the_extender_binds_through_it(
    between: fault_proxy.FaultProxy, clean_cluster: ControlPlane, tmp_path: Path
) -> None:
    """An extender that knows the cluster through the proxy alone schedules a pod."""
    extender = extender_process.Extender(tmp_path, between.kubeconfig)
    extender.start()
    try:
        making.schedule(clean_cluster, extender.port)
        clean_cluster.client.create(objects.pod("shared", {making.MEMORY: 2}))
        assert making.grant(making.bound(clean_cluster, "shared"))["node"] == "n"
    finally:
        extender.close()
    assert between.count(BINDINGS, server_status=201, client_status=201) == 1


def _make_pods(plane: ControlPlane, count: int) -> None:
    plane.client.create_all(objects.pod(f"p{number}") for number in range(count))


def _bind(client: api.Api, name: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    }
    client.call("POST", api.path("Pod", name, api.DEFAULT, "binding"), body)


def _status(client: api.Api, name: str) -> int:
    """What a binding is answered with."""
    try:
        _bind(client, name)
    except api.ApiError as error:
        return error.status
    return 201


def _connection(between: fault_proxy.FaultProxy) -> http.client.HTTPSConnection:
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    parts = urllib.parse.urlsplit(between.url)
    return http.client.HTTPSConnection(
        parts.hostname or "", parts.port, context=trusting, timeout=30
    )


def _watch(
    plane: ControlPlane, connection: http.client.HTTPSConnection
) -> http.client.HTTPResponse:
    """The events of pods from now on, a line each."""
    version = plane.client.call("GET", "/api/v1/pods")["metadata"]["resourceVersion"]
    token = yaml.safe_load(plane.kubeconfig.read_text())["users"][0]["user"]["token"]
    connection.request(
        "GET",
        f"/api/v1/pods?watch=1&resourceVersion={version}",
        headers={"Authorization": f"Bearer {token}"},
    )
    return connection.getresponse()
