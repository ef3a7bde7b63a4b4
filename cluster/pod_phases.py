"""Phases of a pod: what a kubelet would write about it, written by a test when it suits the test.

Nothing runs. Who reads pods sees the same fields change as on a real node: the phase, the state of
the containers, and the end of a deletion, which waits for the kubelet once a pod is bound.
"""

from __future__ import annotations

import datetime as dt

from cluster import api


def run(client: api.Api, name: str, namespace: str = api.DEFAULT) -> api.Object:
    """Say that the pod's containers have started."""
    return _report(client, name, namespace, "Running", {"running": {"startedAt": _now()}})


def succeed(client: api.Api, name: str, namespace: str = api.DEFAULT) -> api.Object:
    """Say that the pod's containers have ended well."""
    return _report(client, name, namespace, "Succeeded", _ended(0))


def fail(client: api.Api, name: str, namespace: str = api.DEFAULT) -> api.Object:
    """Say that the pod's containers have ended badly."""
    return _report(client, name, namespace, "Failed", _ended(1))


def finish_deletion(client: api.Api, name: str, namespace: str = api.DEFAULT) -> None:
    """Say that the containers of a pod that is being deleted are gone; then it is gone too."""
    client.delete("Pod", name, namespace, grace_seconds=0)


def _report(
    client: api.Api, name: str, namespace: str, phase: str, state: api.Object
) -> api.Object:
    pod = client.get("Pod", name, namespace)
    running = "running" in state
    statuses = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": running,
            "restartCount": 0,
            "state": state,
        }
        for container in pod["spec"]["containers"]
    ]
    ready = {"type": "Ready", "status": str(running)}
    status = {"phase": phase, "conditions": [ready], "containerStatuses": statuses}
    change = {"status": status}
    return client.patch(
        "Pod", name, change, namespace=namespace, subresource="status", how=api.STRATEGIC
    )


def _ended(exit_code: int) -> api.Object:
    return {"terminated": {"exitCode": exit_code, "finishedAt": _now()}}


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
