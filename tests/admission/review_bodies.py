"""Bodies of reviews as the API server sends them, and answers read back."""

from __future__ import annotations

import base64
import json
from typing import Any

NAMESPACE = "default"


def pod(limits: dict[str, object], **changes: Any) -> dict[str, Any]:
    """A pod with one container."""
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    spec = {"containers": [container], **changes.pop("spec", {})}
    metadata = {"name": "p", "namespace": NAMESPACE, **changes.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **changes}


def body(
    reviewed: dict[str, Any] | None, *, kind: str = "Pod", operation: str = "CREATE", **changes: Any
) -> bytes:
    """A review of an object."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": kind},
        "resource": {"group": "", "version": "v1", "resource": f"{kind.lower()}s"},
        "operation": operation,
        "namespace": NAMESPACE,
        "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
        "object": reviewed,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        **changes,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


def response(answer: bytes) -> dict[str, Any]:
    """The part of an answer that says something."""
    review = json.loads(answer)
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    written: dict[str, Any] = review["response"]
    assert written["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    return written


def patched(reviewed: dict[str, Any], answer: bytes) -> dict[str, Any]:
    """The object as the API server would store it."""
    written = response(answer)
    assert written["allowed"]
    changed: dict[str, Any] = json.loads(json.dumps(reviewed))
    for operation in json.loads(base64.b64decode(written.get("patch", "W10="))):
        *parents, last = (
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        )
        target: Any = changed
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if operation["op"] == "remove":
            del target[last]
            continue
        assert operation["op"] == "add"
        if isinstance(target, list):
            target.insert(len(target) if last == "-" else int(last), operation["value"])
        else:
            target[last] = operation["value"]
    return changed
