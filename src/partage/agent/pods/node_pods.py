"""Node pods: the pods of this node, as the API server knows them.

They are watched. Where the kubelet is ahead of the watch, which happens when a pod starts within
milliseconds of being bound, they are listed once, and then the answer is as new as the question.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from partage.agent.pods import identity
from partage.dialects import pods, registry
from partage.kube import api as kube
from partage.kube.reflection import reflector

_PATH = "/api/v1/pods"


class Mount(msgspec.Struct, frozen=True, rename="camel"):
    """A volume in a container."""

    mount_path: str = ""


class Variable(msgspec.Struct, frozen=True):
    """A variable of a container's environment; empty where its value is elsewhere."""

    name: str = ""
    value: str = ""


class Container(pods.Container, frozen=True, rename="camel"):
    """A container with its volumes and variables, which matter where it runs and nowhere else."""

    volume_mounts: tuple[Mount, ...] = ()
    env: tuple[Variable, ...] = ()


class Spec(pods.Spec, frozen=True, rename="camel"):
    """What the pod runs."""

    priority_class_name: str = ""
    restart_policy: str = "Always"
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()


class ContainerStatus(pods.ContainerStatus, frozen=True, rename="camel"):
    """What the kubelet last said of one container, with what the runtime calls it."""

    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")


class Status(pods.Status, frozen=True, rename="camel"):
    """What the kubelet last said of the pod."""

    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(pods.Pod, frozen=True, rename="camel"):
    """A pod as its node sees it."""

    spec: Spec = Spec()
    status: Status = Status()


def mounted(pod: pods.Pod, names: Collection[str]) -> Iterator[str]:
    """Where some containers of a pod have volumes."""
    for spot in pods.spots(pod):
        if isinstance(spot.container, Container) and spot.container.name in names:
            for mount in spot.container.volume_mounts:
                yield posixpath.normpath(f"/{mount.mount_path.lstrip('/')}")


def environment(pod: pods.Pod, name: str) -> dict[str, str]:
    """The variables that the manifest gives a container."""
    return {
        variable.name: variable.value
        for spot in pods.spots(pod)
        if isinstance(spot.container, Container) and spot.container.name == name
        for variable in spot.container.env
    }


def priority_class(pod: pods.Pod) -> str:
    """The name of a pod's PriorityClass; empty if it has none."""
    return pod.spec.priority_class_name if isinstance(pod.spec, Spec) else ""


class NodePods:
    """Keeps the pods, and tells when one changed or went."""

    def __init__(
        self, api: kube.Api, node: str, changed: Callable[[str, pods.Pod | None], None]
    ) -> None:
        self.by_uid: dict[str, pods.Pod] = {}  # by uid
        self._api = api
        self._query = {"fieldSelector": f"spec.nodeName={node}"}
        self._changed = changed
        self._listing: asyncio.Task[None] | None = None
        self._dropped: set[str] = set()  # since that list was asked for
        self.reflector = reflector.Reflector(
            api, _PATH, Pod, self, key=lambda pod: pod.metadata.uid, query=self._query
        )

    def put(self, pod: pods.Pod) -> None:
        uid = pod.metadata.uid
        kept = registry.trimmed(pod)
        if self.by_uid.get(uid) != kept:
            self.by_uid[uid] = kept
            self._changed(uid, kept)

    def drop(self, key: str) -> None:
        if self._listing is not None and not self._listing.done():
            self._dropped.add(key)
        if self.by_uid.pop(key, None) is not None:
            self._changed(key, None)

    def keys(self) -> Collection[str]:
        return self.by_uid.keys()

    def uid_of(self, namespace: str, name: str) -> str:
        """The uid of a pod by its names; empty if there is none, or if two follow each other."""
        full_name = (namespace, name)
        uids = [
            uid
            for uid, pod in self.by_uid.items()
            if (pod.metadata.namespace, pod.metadata.name) == full_name
        ]
        return uids[0] if len(uids) == 1 else ""

    async def catch_up(self) -> None:
        """List the pods once; those who ask at the same time share an answer."""
        # A list that is under way may be older than what this caller was told: wait for the next.
        # Whether that one fails does not matter here.
        if self._listing is not None:
            await asyncio.wait([self._listing])
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(self._list())
        await asyncio.shield(self._listing)

    async def statuses(self, pod: pods.Pod) -> Mapping[str, identity.Status]:
        """What the API server knows of a pod's init containers at this moment."""
        meta = pod.metadata
        path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}"
        statuses = (await self._api.get(path, _Statuses)).status.init_container_statuses
        return {status.name: status for status in statuses}

    async def _list(self) -> None:
        """Add what the watch has not told yet; whatever it has told is at least as new."""
        self._dropped.clear()
        async for page in self._api.pages(_PATH, Pod, query=self._query):
            for pod in page.items:
                uid = pod.metadata.uid
                if uid not in self.by_uid and uid not in self._dropped:
                    self.put(pod)


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    init_container_statuses: tuple[identity.Status, ...] = ()


class _Statuses(msgspec.Struct, frozen=True):
    status: _Status = _Status()
