"""What tests on a real control plane have in common."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from cluster import api, objects
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane

MEMORY = objects.MEMORY
GRANT = "partage.dev/grant"
ADVERTISED = (objects.MEMORY, objects.COUNT)


def schedule(plane: ControlPlane, port: int, *, advertised: Iterable[str] = ADVERTISED) -> None:
    """Start kube-scheduler with Partage's own configuration."""
    configuration = scheduler_config.partage(
        plane.kubeconfig,
        port=port,
        advertised=tuple(advertised),
        second_name="t9k-scheduler",
        queries_per_second=500,
    )
    plane.start_scheduler(configuration)


def eventually(
    check: Callable[[], Any], *, patience_s: float = 120.0, why: Callable[[], str] = str
) -> Any:
    """What the check returns once it is true; fails if it never is, and says ``why``."""
    deadline = time.monotonic() + patience_s
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < deadline, f"still not so after {patience_s:g} s\n{why()}"
        time.sleep(0.05)


def node_of(plane: ControlPlane, name: str) -> str:
    """Where a pod is bound; empty if it is not."""
    node: str = plane.client.get("Pod", name)["spec"].get("nodeName", "")
    return node


def bound(plane: ControlPlane, name: str) -> api.Object:
    """A pod, once it is bound."""
    eventually(lambda: node_of(plane, name))
    return plane.client.get("Pod", name)


def told(plane: ControlPlane, name: str, *texts: str) -> None:
    """Wait until an event of a pod says one of the texts.

    The first event may say something else: the scheduler tries before it has seen the node.
    """
    eventually(
        lambda: [said for said in events(plane, name) if any(text in said for text in texts)],
        why=lambda: str(events(plane, name)),
    )


def written(pod: api.Object) -> dict[str, str]:
    """What is written on a pod."""
    return dict(pod["metadata"].get("annotations") or {})


def grant(pod: api.Object) -> dict[str, Any]:
    """The grant that is recorded on a pod."""
    record: dict[str, Any] = json.loads(written(pod)[GRANT])
    return record


def events(plane: ControlPlane, name: str) -> list[str]:
    """The messages of a pod's events, oldest first."""
    uid = plane.client.get("Pod", name)["metadata"]["uid"]
    events = plane.client.list_all("Event")
    return [event["message"] for event in events if event["involvedObject"].get("uid") == uid]
