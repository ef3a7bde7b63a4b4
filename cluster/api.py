"""Api: a plain, blocking client of an API server, for tests and benchmarks.

It is not Partage's own client on purpose: a test must not look at the cluster through the code that
it tests. Every call may come from any thread; connections are kept and used again, and
:meth:`Api.create_all` uses several at once, which makes thousands of objects a matter of seconds.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import http.client
import ssl
import urllib.parse
from collections.abc import Iterable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import msgspec
import yaml

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
DEFAULT = "default"

_CONNECTIONS = 8  # more do not help: the API server shares the machine's cores with us
_TIMEOUT_SECONDS = 60
_PAGE = 500  # objects
_GROUPS = {
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "ElasticGPU": "elasticgpu.io/v1alpha1",
    "ElasticGPUClaim": "elasticgpu.io/v1alpha1",
    "ElasticGPUClass": "elasticgpu.io/v1alpha1",
    "GPU": "elasticgpu.io/v1alpha1",
    "Job": "batch/v1",
    "Lease": "coordination.k8s.io/v1",
    "MutatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
    "MutatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1",
    "MutatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "RuntimeClass": "node.k8s.io/v1",
    "StatefulSet": "apps/v1",
    "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
    "ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
}  # of kinds that are not in v1
_WITHOUT_NAMESPACE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "ElasticGPU",
    "ElasticGPUClass",
    "GPU",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PriorityClass",
    "RuntimeClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
}


class ApiError(Exception):
    """The API server said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class Api:
    """One API server, as one user."""

    def __init__(self, server: str, *, token: str, authority_pem: str) -> None:
        parts = urllib.parse.urlsplit(server)
        self._host, self._port = parts.hostname or "", parts.port
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._trust = ssl.create_default_context(cadata=authority_pem)
        self._idle: collections.deque[http.client.HTTPSConnection] = collections.deque()

    @classmethod
    def of(cls, kubeconfig: Path) -> Api:
        """The server and user of a kubeconfig as a control plane writes it."""
        read = yaml.safe_load(kubeconfig.read_text())
        where = read["clusters"][0]["cluster"]
        authority = base64.b64decode(where["certificate-authority-data"]).decode()
        token = read["users"][0]["user"]["token"]
        return cls(where["server"], token=token, authority_pem=authority)

    def create(self, made: Object, *, subresource: str = "") -> Object:
        """Create an object; ``subresource`` is for bindings and evictions."""
        meta = made["metadata"]
        kind, name = (made["kind"], meta["name"]) if subresource else (made["kind"], "")
        namespace = meta.get("namespace", DEFAULT)
        where = path(kind, name, namespace, subresource, version=made["apiVersion"])
        return self.call("POST", where, made)

    def create_all(self, objects: Iterable[Object], *, connections: int = _CONNECTIONS) -> None:
        """Create many objects, several at once, in no particular order."""
        with futures.ThreadPoolExecutor(connections) as pool:
            for _ in pool.map(self.create, objects):
                pass

    def get(self, kind: str, name: str, namespace: str = DEFAULT) -> Object:
        """Read one object."""
        return self.call("GET", path(kind, name, namespace))

    def list_all(self, kind: str, namespace: str = "", *, selector: str = "") -> list[Object]:
        """Read all objects of a kind, of one namespace or of all."""
        query = "?" + urllib.parse.urlencode({"labelSelector": selector}) if selector else ""
        return list(self.call("GET", path(kind, "", namespace) + query)["items"])

    def each(self, kind: str, namespace: str = "") -> Iterator[Object]:
        """The same objects, of one moment too, without having them all in memory at once."""
        rest = ""
        while True:
            query = urllib.parse.urlencode({"limit": _PAGE, "continue": rest})
            page = self.call("GET", f"{path(kind, '', namespace)}?{query}")
            yield from page["items"]
            rest = page["metadata"].get("continue", "")
            if not rest:
                return

    def patch(
        self,
        kind: str,
        name: str,
        change: Object,
        *,
        namespace: str = DEFAULT,
        subresource: str = "",
        how: str = MERGE,
    ) -> Object:
        """Change part of an object; ``subresource="status"`` for its status."""
        where = path(kind, name, namespace, subresource)
        return self.call("PATCH", where, change, content_type=how)

    def delete(
        self, kind: str, name: str, namespace: str = DEFAULT, *, grace_seconds: int | None = None
    ) -> Object:
        """Delete an object; a pod on a node without kubelet is gone only with a grace of 0."""
        grace = "" if grace_seconds is None else f"?gracePeriodSeconds={grace_seconds}"
        return self.call("DELETE", path(kind, name, namespace) + grace)

    def events_since(self, kind: str, resource_version: str, *, seconds: int = 1) -> list[Object]:
        """What a watch from a resource version tells within some seconds."""
        query = f"?watch=1&resourceVersion={resource_version}&timeoutSeconds={seconds}"
        status, body = self._send("GET", path(kind, "", "") + query, None, "")
        _check(status, body)
        return [msgspec.json.decode(line) for line in body.splitlines()]

    def text(self, where: str) -> str:
        """What is at a path and is no object, such as metrics."""
        status, body = self._send("GET", where, None, "")
        _check(status, body)
        return body.decode()

    def is_ready(self, endpoint: str = "/readyz") -> bool:
        """Whether the server answers, and says that it is ready."""
        try:
            return self._send("GET", endpoint, None, "")[0] == http.HTTPStatus.OK
        except OSError:
            return False

    def clear(self) -> None:
        """Delete all pods and nodes at once, whatever finalizers hold them."""
        for namespace in {pod["metadata"]["namespace"] for pod in self.list_all("Pod")}:
            self.call("DELETE", path("Pod", "", namespace) + "?gracePeriodSeconds=0")
        self.call("DELETE", path("Node", "", ""))
        for kind in ("Pod", "Node"):
            for held in self.list_all(kind):
                meta = held["metadata"]
                released: Object = {"metadata": {"finalizers": None}}
                self.patch(kind, meta["name"], released, namespace=meta.get("namespace", ""))

    def call(
        self,
        method: str,
        where: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
    ) -> Object:
        """Any request; raises ApiError unless the answer is a success."""
        status, answer = self._send(method, where, body, content_type)
        _check(status, answer)
        decoded: Object = msgspec.json.decode(answer)
        return decoded

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        while self._idle:
            self._idle.pop().close()

    def _send(
        self, method: str, where: str, body: Object | None, content_type: str
    ) -> tuple[int, bytes]:
        data = None if body is None else msgspec.json.encode(body)
        headers = self._headers if data is None else self._headers | {"Content-Type": content_type}
        with self._connection() as connection:
            fresh = connection.sock is None
            try:
                return _exchange(connection, method, where, data, headers)
            except (http.client.HTTPException, OSError):
                # A kept connection ends with its server; a new one may reach the next server.
                connection.close()
                if fresh:
                    raise
                return _exchange(connection, method, where, data, headers)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[http.client.HTTPSConnection]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = http.client.HTTPSConnection(
                self._host, self._port, context=self._trust, timeout=_TIMEOUT_SECONDS
            )
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)


def path(
    kind: str, name: str = "", namespace: str = DEFAULT, subresource: str = "", *, version: str = ""
) -> str:
    """The path of an object, or of a list if there is no name; no namespace means all."""
    version = version or _GROUPS.get(kind, "v1")
    space = f"/namespaces/{namespace}" if namespace and kind not in _WITHOUT_NAMESPACE else ""
    plural = _plural(kind.lower())
    tail = "".join(f"/{part}" for part in (name, subresource) if part)
    return f"/{'apis' if '/' in version else 'api'}/{version}{space}/{plural}{tail}"


def _plural(kind: str) -> str:
    if kind.endswith("y"):
        return f"{kind.removesuffix('y')}ies"
    return kind + ("es" if kind.endswith("s") else "s")


def _exchange(
    connection: http.client.HTTPSConnection,
    method: str,
    where: str,
    data: bytes | None,
    headers: dict[str, str],
) -> tuple[int, bytes]:
    connection.request(method, where, body=data, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def _check(status: int, body: bytes) -> None:
    if status < http.HTTPStatus.BAD_REQUEST:
        return
    try:
        message = msgspec.json.decode(body)["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        message = body.decode(errors="replace")
    raise ApiError(status, message)
