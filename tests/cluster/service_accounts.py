"""Service accounts: what a program may do in a cluster, and a kubeconfig with its rights."""

from __future__ import annotations

import yaml

from cluster import api
from cluster.control_plane.control_plane import ControlPlane

_NAMESPACE = "kube-system"


def kubeconfig(
    plane: ControlPlane,
    name: str,
    pod: api.Object | None = None,
    *,
    namespace: str = _NAMESPACE,
) -> str:
    """A kubeconfig with a token of the account, as a pod has it or as nobody in particular."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    if pod is not None:
        owner = {key: pod["metadata"][key] for key in ("name", "uid")}
        request["spec"] = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", **owner}}
    token = plane.client.call("POST", path, request)["status"]["token"]
    written = yaml.safe_load(plane.kubeconfig.read_text())
    written["users"][0]["user"] = {"token": token}
    return yaml.safe_dump(written)


def may(
    plane: ControlPlane,
    account: str,
    verb: str,
    resource: str,
    *,
    namespace: str = _NAMESPACE,
    name: str = "",
    group: str = "",
    home: str = _NAMESPACE,
) -> bool:
    """Whether a service account of a ``home`` may do something, as the API server sees it."""
    kind, _, part = resource.partition("/")
    request = {
        "verb": verb,
        "group": group,
        "resource": kind,
        "subresource": part,
        "namespace": namespace,
        "name": name,
    }
    user = f"system:serviceaccount:{home}:{account}"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": request},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(plane.client.call("POST", path, review)["status"]["allowed"])
