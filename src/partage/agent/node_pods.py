"""Node pods: the pods of this node, as the API server knows them.

They are watched. Where the kubelet is ahead of the watch, which happens when a pod starts within
milliseconds of being bound, they are listed once, and then the answer is as new as the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

import msgspec

from partage.agent import identity
from partage.dialects import pods, registry
from partage.kube import api as kube
from partage.kube import reflector

_PATH = "/api/v1/pods"


class NodePods:
    """Keeps the pods, and tells when one changed or went."""

    def __init__(
        self, api: kube.Api, node: str, changed: Callable[[str, pods.Pod | None], None]
    ) -> None:
        self.known: dict[str, pods.Pod] = {}  # by uid
        self._api = api
        self._query = {"fieldSelector": f"spec.nodeName={node}"}
        self._changed = changed
        self._listing: asyncio.Task[None] | None = None
        self.reflector = reflector.Reflector(
            api, _PATH, pods.Pod, self, key=lambda pod: pod.metadata.uid, query=self._query
        )

    def put(self, pod: pods.Pod) -> None:
        uid = pod.metadata.uid
        kept = registry.trimmed(pod)
        if self.known.get(uid) != kept:
            self.known[uid] = kept
            self._changed(uid, kept)

    def drop(self, key: str) -> None:
        if self.known.pop(key, None) is not None:
            self._changed(key, None)

    def keys(self) -> Collection[str]:
        return self.known.keys()

    def uid_of(self, namespace: str, name: str) -> str:
        """The uid of a pod by its names; empty if there is none."""
        for uid, pod in self.known.items():
            if (pod.metadata.namespace, pod.metadata.name) == (namespace, name):
                return uid
        return ""

    async def catch_up(self) -> None:
        """List the pods once; those who ask at the same time share an answer."""
        # A list that is under way may be older than what this caller was told: wait for the next.
        # Whether that one fails is no matter here.
        if self._listing is not None:
            await asyncio.wait([self._listing])
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(self._list())
        await asyncio.shield(self._listing)

    async def statuses(self, pod: pods.Pod) -> Mapping[str, identity.Status]:
        """What the API server knows of a pod's init containers at this moment."""
        meta = pod.metadata
        path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}"
        found = (await self._api.get(path, _Pod)).status.init_container_statuses
        return {status.name: status for status in found}

    async def _list(self) -> None:
        async for page in self._api.pages(_PATH, pods.Pod, query=self._query):
            for pod in page.items:
                self.put(pod)


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    init_container_statuses: tuple[identity.Status, ...] = ()


class _Pod(msgspec.Struct, frozen=True):
    status: _Status = _Status()
