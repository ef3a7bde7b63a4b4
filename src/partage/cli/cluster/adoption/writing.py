"""Writing: objects of a cluster, each brought into a state, whatever it was before.

A write that was sent and not answered is sent again: it does nothing the second time. So a server
that is away for a moment does not end a take-over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from partage.cli.cluster.adoption import adoptions, forms, objects
from partage.cli.cluster.facts import forms as doctors_forms
from partage.dialects import bound_pods, pods
from partage.kube import api as kube
from partage.kube import errors as kube_errors

T = TypeVar("T")

Pause = Callable[[], Awaitable[None]]
PASSING = (kube_errors.Unreachable, kube_errors.ServerError, kube_errors.TooManyRequests)

_TRIES = 30  # with a pause of a second between them
_CONFLICTS = 10


class Writer:
    """Reads and writes what a take-over needs."""

    def __init__(self, api: kube.Api, pause: Pause) -> None:
        self.api = api
        self._pause = pause

    async def patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """What ``work`` gives, if need be when the server is back."""
        for _ in range(_TRIES - 1):
            try:
                return await work()
            except PASSING:
                await self._pause()
        return await work()

    async def change(self, change: adoptions.Change) -> None:
        """Bring an object into its state."""
        match change:
            case adoptions.Put(made):
                await self._put(made)
            case adoptions.Remove(path=path):
                await self.patiently(lambda: self._removed(path))

    async def node(self, name: str) -> doctors_forms.Node:
        """A node as it is now."""
        path = f"/api/v1/nodes/{name}"
        return await self.patiently(lambda: self.api.get(path, doctors_forms.Node))

    async def pods(self, node: str) -> list[forms.Pod]:
        """The pods of a node that have not ended."""

        async def read() -> list[forms.Pod]:
            query = {"fieldSelector": f"spec.nodeName={node}"}
            pages = self.api.pages("/api/v1/pods", forms.Pod, query=query)
            return [pod async for page in pages for pod in page.items]

        return await self.patiently(read)

    async def patch_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str | None] | None = None,
        annotations: Mapping[str, str | None] | None = None,
        unschedulable: bool | None = None,
    ) -> None:
        """Change labels, annotations, or whether pods may come."""
        change: objects.Object = {
            "metadata": {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
        }
        if unschedulable is not None:
            change["spec"] = {"unschedulable": unschedulable or None}
        path = f"/api/v1/nodes/{name}"
        await self.patiently(lambda: self.api.patch(path, change))

    async def delete_pod(self, pod: forms.Pod) -> None:
        """Delete this very pod."""

        async def delete() -> None:
            try:
                await self.api.delete(pod.path, uid=pod.metadata.uid)
            except (kube_errors.NotFound, kube_errors.Conflict):
                return  # it is gone, or another has its name

        await self.patiently(delete)

    async def _put(self, made: objects.Object) -> None:
        for _ in range(_CONFLICTS - 1):
            try:
                return await self.patiently(lambda: self._put_once(made))
            except kube_errors.Conflict:
                await self._pause()  # somebody, a controller for example, wrote meanwhile
        return await self.patiently(lambda: self._put_once(made))

    async def _put_once(self, made: objects.Object) -> None:
        path = objects.path(made)
        try:
            present = await self.api.get(path, dict)
        except kube_errors.NotFound:
            await self.api.create(objects.folder(made), made)
            return
        version = {"resourceVersion": present["metadata"]["resourceVersion"]}
        await self.api.replace(path, made | {"metadata": made["metadata"] | version}, dict)

    async def _removed(self, path: str) -> None:
        try:
            await self.api.delete(path)
        except kube_errors.NotFound:
            return


def tenants(some: list[forms.Pod]) -> list[forms.Pod]:
    """Those that ask for cards and have not ended."""
    return [pod for pod in some if bound_pods.asks(pod) and not pods.ended(pod)]
