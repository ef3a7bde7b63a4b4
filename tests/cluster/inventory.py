"""An inventory: what people would look for after they have removed something from a cluster.

Objects that come and go by themselves are not in it, and of nodes what is written on them and what
they offer.
"""

from __future__ import annotations

from collections.abc import Iterator

from cluster import api
from cluster.control_plane.control_plane import ControlPlane

Entry = tuple[str, str]  # kind, and which one

_KINDS = (
    *("ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration", "Namespace"),
    *("ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "PriorityClass"),
    *("ValidatingAdmissionPolicyBinding", "CustomResourceDefinition", "RuntimeClass"),
)
_SPACED = (
    *("ConfigMap", "Secret", "ServiceAccount", "Service", "Role", "RoleBinding", "Pod"),
    *("Deployment", "DaemonSet", "Job", "NetworkPolicy", "PodDisruptionBudget", "ResourceQuota"),
)
_OF_OTHERS = "kube-"  # how namespaces begin with leases that others renew


def taken(plane: ControlPlane) -> set[Entry]:
    """All that is there now."""
    return {
        *((kind, made["metadata"]["name"]) for kind in _KINDS for made in _all(plane, kind)),
        *((kind, _named(made)) for kind in _SPACED for made in _all(plane, kind)),
        *(
            ("Lease", _named(made))
            for made in _all(plane, "Lease")
            if not made["metadata"]["namespace"].startswith(_OF_OTHERS)
        ),
        *(entry for node in _all(plane, "Node") for entry in _of_node(node)),
    }


def _of_node(node: api.Object) -> Iterator[Entry]:
    meta, status = node["metadata"], node["status"]
    for written in ("labels", "annotations"):
        for name, text in (meta.get(written) or {}).items():
            yield f"Node {written}", f"{meta['name']} {name}={text}"
    for taint in node["spec"].get("taints", ()):
        yield "Node taints", f"{meta['name']} {taint}"
    for resource, amount in status["allocatable"].items():
        if amount != "0" and resource not in {"memory", "ephemeral-storage"}:  # these vary
            yield "Node resources", f"{meta['name']} {resource}={amount}"


def _named(made: api.Object) -> str:
    return f"{made['metadata']['namespace']}/{made['metadata']['name']}"


def _all(plane: ControlPlane, kind: str) -> list[api.Object]:
    made: list[api.Object] = plane.client.call("GET", api.path(kind, namespace=""))["items"]
    return made
