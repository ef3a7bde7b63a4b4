"""Claims on a control plane: their definitions, and objects of each kind as short as a line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from tests.cluster import definitions, installing, making

VERSION = "elasticgpu.io/v1alpha1"
CLAIM, ELASTIC_GPU, CLASS, GPU = "ElasticGPUClaim", "ElasticGPU", "ElasticGPUClass", "GPU"
KINDS = (CLAIM, ELASTIC_GPU, CLASS, GPU)
CLAIM_OF = "elasticgpu.io/egpuc-"  # an annotation, with the container's name after it
CORE, MEMORY = "elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"


@contextlib.contextmanager
def defined(plane: ControlPlane) -> Iterator[None]:
    """The kinds are there until the end; nothing of them is left then, whoever has failed."""
    written = installing.manifests("claims.yaml")
    kinds = [made for made in written if made["kind"] == definitions.KIND]
    policies = [made for made in written if made["kind"] != definitions.KIND]
    with definitions.installed(plane, kinds):
        try:
            installing.apply(plane, policies)
            making.eventually(lambda: policy_refuses(plane))
            yield
        finally:
            for policy in policies:
                plane.client.delete(policy["kind"], policy["metadata"]["name"], "")
            clear(plane)


def policy_refuses(plane: ControlPlane, annotation: str = f"{CLAIM_OF}main") -> str:
    """What the policy says of a pod that names a claim and nothing else; empty if nothing."""
    pod = objects.pod("without-a-limit", annotations={annotation: "c"})
    try:
        plane.client.call("POST", f"{api.path('Pod')}?dryRun=All", pod)
    except api.ApiError as error:
        if "partage-claims" not in str(error):
            raise
        return str(error)
    return ""


def clear(plane: ControlPlane) -> None:
    """Delete what tests have left, where nobody runs who would agree to the end of it."""
    for kind in KINDS:
        plane.client.call("DELETE", api.path(kind))
        for left in plane.client.list_all(kind):
            meta = left["metadata"]
            with contextlib.suppress(api.ApiError):
                body = {"metadata": {"finalizers": None}}
                plane.client.patch(kind, meta["name"], body, namespace=meta.get("namespace", ""))


def made(kind: str, name: str, **fields: Any) -> api.Object:
    """An object of one of the kinds."""
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, **fields}


def gpu_class(name: str = "shares", **fields: Any) -> api.Object:
    """A class whose claims ask for a share of a card."""
    return made(CLASS, name, provisioner="elasticgpu.io/gpushare", **fields)


def claim(name: str, mib: int, class_name: str = "shares") -> api.Object:
    """A claim for memory of one card."""
    resources = {"requests": {MEMORY: f"{mib}Mi"}}
    return made(CLAIM, name, spec={"elasticGPUClassName": class_name, "resources": resources})


def phase(plane: ControlPlane, kind: str, name: str, expected: str) -> api.Object:
    """An object, once it is in a phase."""
    space = api.DEFAULT if kind == CLAIM else ""

    def is_so() -> api.Object | None:
        now = plane.client.get(kind, name, space)
        return now if now.get("status", {}).get("phase") == expected else None

    reached: api.Object = making.eventually(
        is_so, why=lambda: str(plane.client.get(kind, name, space))
    )
    return reached


def reason(claim: api.Object) -> str:
    """Why a claim is bound, or not."""
    conditions = claim.get("status", {}).get("conditions", ())
    return next((c["reason"] for c in conditions if c["type"] == "Bound"), "")
