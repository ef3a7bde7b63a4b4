"""The part of a Kubernetes Pod that says which cards it wants, which it has, and whether it runs.

The structs decode straight from the API server's JSON (or from a manifest) and leave out all else,
so a pod costs what its requests cost. Amounts stay as they were written, text or number: what they
mean depends on the resource, and a refusal should quote what the user wrote, not our reading of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from partage.core import demands, grants

Amount = str | int | float
DEFAULT_SCHEDULER = "default-scheduler"  # which the API server writes where a pod names none


class Resources(msgspec.Struct, frozen=True, rename="camel"):
    """What a container asks for, by resource name."""

    limits: Mapping[str, Amount] = {}
    requests: Mapping[str, Amount] = {}


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """One container; ``restart_policy`` is set on init containers that keep running."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""


class Owner(msgspec.Struct, frozen=True):
    """What the pod belongs to; a ``controller`` makes another one when it is gone."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Who the pod is, and what was written on it."""

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    deletion_timestamp: str | None = None
    resource_version: str = ""
    owner_references: tuple[Owner, ...] = ()

    @property
    def version(self) -> int:
        """How new this word about the pod is: greater is newer; 0 if it does not say.

        Kubernetes compares resource versions as numbers, and so may its clients (KEP-5504).
        """
        text = self.resource_version
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """What the pod runs, and where."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    scheduler_name: str = ""
    node_name: str = ""
    overhead: Mapping[str, Amount] = {}


class State(msgspec.Struct, frozen=True, rename="camel"):
    """What a container does: at most one of these is there."""

    running: Mapping[str, Any] | None = None
    terminated: Mapping[str, Any] | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the kubelet last said of one container."""

    state: State = State()


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """What the kubelet last said of the pod."""

    phase: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod as the dialects see it."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def identity(self) -> grants.Pod:
        """Whose grant it would be."""
        meta = self.metadata
        return grants.Pod(meta.uid, meta.namespace, meta.name)


def ended(pod: Pod) -> bool:
    """Whether nothing of the pod runs any more, or ever will again.

    That deletion was asked for is not enough: containers run on through their grace period, with
    all the memory they have.
    """
    states = [
        s.state for s in (*pod.status.container_statuses, *pod.status.init_container_statuses)
    ]
    if any(state.running is not None for state in states):
        return False
    if pod.status.phase in ("Succeeded", "Failed"):
        return True
    stopped = (s.state.terminated is not None for s in pod.status.container_statuses)
    has_statuses = bool(pod.status.container_statuses)
    return pod.metadata.deletion_timestamp is not None and has_statuses and all(stopped)


def controller(pod: Pod) -> Owner | None:
    """What made the pod, and would make another; None if nobody would."""
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


class Spot(msgspec.Struct, frozen=True):
    """A container, when it runs, and the path by which a message names it."""

    container: Container
    role: demands.Role
    path: str


def spots(pod: Pod) -> Iterator[Spot]:
    """All containers in the order in which they start: init containers, then apps."""
    for i, container in enumerate(pod.spec.init_containers):
        stays = container.restart_policy == "Always"
        role = demands.Role.SIDECAR if stays else demands.Role.INIT
        yield Spot(container, role, f"spec.initContainers[{i}]")
    for i, container in enumerate(pod.spec.containers):
        yield Spot(container, demands.Role.APP, f"spec.containers[{i}]")


def resources(pod: Pod) -> set[str]:
    """The names of all resources that the pod's containers name."""
    named: set[str] = set()
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        named.update(container.resources.limits)
        named.update(container.resources.requests)
    return named


def app_positions(pod: Pod) -> dict[str, int]:
    """The position of each app container in ``spec.containers``, by name."""
    return {container.name: i for i, container in enumerate(pod.spec.containers)}
