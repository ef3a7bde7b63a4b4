"""Objects of Kubernetes as they are read and written whole: plain dictionaries, and their paths."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

# Of metadata: what the API server keeps by itself.
_ITS_OWN = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation"),
    *("managedFields", "resourceVersion", "selfLink", "uid"),
)
_PLURALS = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ConfigMap": "configmaps",
    "DaemonSet": "daemonsets",
    "Deployment": "deployments",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Secret": "secrets",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
}


def folder(made: Object) -> str:
    """The path of the list that the object is in."""
    version, namespace = made["apiVersion"], made["metadata"].get("namespace", "")
    base = f"/{'apis' if '/' in version else 'api'}/{version}"
    space = f"/namespaces/{namespace}" if namespace else ""
    return f"{base}{space}/{_PLURALS[made['kind']]}"


def path(made: Object) -> str:
    """The path of the object."""
    return f"{folder(made)}/{made['metadata']['name']}"


def label(made: Object) -> str:
    """Its name for people."""
    meta = made["metadata"]
    space = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f"{made['kind']} {space}{meta['name']}"


def bare(made: Object, *, kind: str = "", version: str = "") -> Object:
    """What somebody wrote of an object; items of a list do not say what they are."""
    meta = {name: value for name, value in made["metadata"].items() if name not in _ITS_OWN}
    rest = {
        name: copy.deepcopy(value)
        for name, value in made.items()
        if name not in ("apiVersion", "kind", "metadata", "status")
    }
    head = {"apiVersion": version or made["apiVersion"], "kind": kind or made["kind"]}
    return {**head, "metadata": copy.deepcopy(meta), **rest}


def pod_spec(workload: Object) -> Object:
    """What the pods of a Deployment or a DaemonSet are."""
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def selector(workload: Object) -> Mapping[str, str]:
    """The labels by which its nodes are chosen."""
    chosen: Mapping[str, str] = pod_spec(workload).get("nodeSelector") or {}
    return chosen
