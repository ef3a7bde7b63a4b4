"""The part of a Kubernetes Pod that says which cards it wants and which it has.

The structs decode straight from the API server's JSON (or from a manifest) and leave out all else,
so a pod costs what its requests cost. Amounts stay as they were written, text or number: what they
mean depends on the resource, and a refusal should quote the user, not our reading of him.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from partage.core import demands, grants

Amount = str | int | float


class Resources(msgspec.Struct, frozen=True, rename="camel"):
    """What a container asks for, by resource name."""

    limits: Mapping[str, Amount] = {}
    requests: Mapping[str, Amount] = {}


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """One container; ``restart_policy`` is set on init containers that keep running."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Who the pod is, and what was written on it."""

    name: str = ""
    namespace: str = "default"
    uid: str = ""
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """What the pod runs, and where."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    scheduler_name: str = ""
    node_name: str = ""


class Pod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod as the dialects see it."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()

    @property
    def identity(self) -> grants.Pod:
        """Whose grant it would be."""
        meta = self.metadata
        return grants.Pod(meta.uid, meta.namespace, meta.name)


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


def app_positions(pod: Pod) -> dict[str, int]:
    """The place of each app container in ``spec.containers``, by name."""
    return {container.name: i for i, container in enumerate(pod.spec.containers)}
