"""A cluster read once, for commands that show it: nodes, pods, unhealthy cards, and totals.

Only the API server is asked, so that what is shown does not depend on whether anything of Partage
runs. Lists come page by page and are handed on, not kept: of 50,000 pods a table needs few. A list
that expired while it was read is not a failure: everything is then read again from the beginning.

The kubeconfig of the person at the terminal counts before the service account of a pod, as for
kubectl. Errors are a CannotRead, which says what to do next; aiohttp is imported only when there is
something to ask.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from partage.core import errors
from partage.dialects import namespaces, nodes, pods
from partage.kube import errors as kube_errors
from partage.scheduler.mirror import health_sink

if TYPE_CHECKING:
    from partage.kube import api as kube

T = TypeVar("T")
N = TypeVar("N", bound=nodes.Node)
P = TypeVar("P", bound=pods.Pod)

_NODES, _PODS = "/api/v1/nodes", "/api/v1/pods"
_NAMESPACES = "/api/v1/namespaces"
_CONFIGMAPS = "/api/v1/namespaces/kube-system/configmaps"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_TRIES = 3
_LONGEST_WAIT_S = 5.0

_ADVICE = {
    kube_errors.Forbidden: "docs/inspect.md shows the ClusterRole that this needs",
    kube_errors.Unauthorized: "log in again, or choose another context",
    kube_errors.Gone: "the cluster changes quickly; try again",
    kube_errors.TooManyRequests: "the API server is busy; try again later",
    kube_errors.ServerError: "check the API server, then try again",
    kube_errors.Unreachable: "check that the API server runs and can be reached, then try again",
    kube_errors.BadAnswer: "check that the kubeconfig names a Kubernetes API server",
}


class CannotRead(errors.PartageError):
    """The cluster could not be read; ``words`` is what the API server said itself, if anything."""

    code = "cannot-read-cluster"

    def __init__(self, what: str, *, words: str, instead: str) -> None:
        self.words = words
        super().__init__(what, instead=instead)


class Cluster:
    """What can be read of a cluster: all of it, or the part of ``node``."""

    def __init__(self, api: kube.Api, node: str) -> None:
        self.api = api  # for commands that change something, or look at other objects
        self.node = node

    async def each_node(self) -> AsyncIterator[nodes.Node]:
        """All nodes, or the one node."""
        if self.node:
            yield await self.one_node(nodes.Node)
            return
        async for node in self._each(_NODES, nodes.Node):
            yield node

    async def each_pod(self, form: type[P]) -> AsyncIterator[P]:
        """All pods, bound or not, or those of the one node; in a form that has what is needed."""
        async for pod in self._each(_PODS, form, "spec.nodeName={}"):
            yield pod

    async def each_unhealthy_list(self) -> AsyncIterator[health_sink.UnhealthyList]:
        """Lists of unhealthy cards, or the list of the one node; others may be among them."""
        async for unhealthy in self._each(
            _CONFIGMAPS, health_sink.UnhealthyList, "metadata.name=unhealthy-gpu-{}"
        ):
            yield unhealthy

    async def each_namespace(self) -> AsyncIterator[namespaces.Namespace]:
        """All namespaces; none for the one node, whose pods are not all that a namespace has."""
        if not self.node:
            async for namespace in self._each(_NAMESPACES, namespaces.Namespace):
                yield namespace

    async def one_node(self, form: type[N]) -> N:
        """The node that was named, in a form that has what is needed."""
        # A name that no node can have is not put into a path.
        said = f'nodes "{self.node}" not found'
        try:
            if _NAME.fullmatch(self.node):
                return await self.api.get(f"{_NODES}/{self.node}", form)
        except kube_errors.NotFound as error:
            if error.reason != "NotFound":
                raise  # the server that answered is not an API server
            said = error.message
        what = f"there is no node {self.node!r}"
        raise CannotRead(what, words=said, instead="'kubectl get nodes' lists them")

    async def _each(self, path: str, form: type[T], selector: str = "") -> AsyncIterator[T]:
        query: Mapping[str, str] = (
            {"fieldSelector": selector.format(self.node)} if self.node else {}
        )
        async for page in self.api.pages(path, form, query=query):
            for item in page.items:
                yield item


def read(
    work: Callable[[Cluster], Awaitable[T]],
    *,
    kubeconfig: str | None,
    context: str | None,
    node: str,
) -> T:
    """The result of ``work`` on a cluster; it starts again, with a new one, if a list expired."""
    try:
        return asyncio.run(_read(work, kubeconfig, context, node))
    except kube_errors.KubeError as error:
        raise _told(error) from error


async def _read(
    work: Callable[[Cluster], Awaitable[T]],
    kubeconfig: str | None,
    context: str | None,
    node: str,
) -> T:
    from partage.kube import api as kube
    from partage.kube.auth import credentials

    access = credentials.load(kubeconfig or _own_kubeconfig(), context)
    async with kube.Api(access) as api:
        for _ in range(_TRIES - 1):
            try:
                return await work(Cluster(api, node))
            except kube_errors.Gone:
                continue
            except kube_errors.TooManyRequests as error:
                await asyncio.sleep(min(error.retry_after_s, _LONGEST_WAIT_S))
        return await work(Cluster(api, node))


def _own_kubeconfig() -> str | None:
    """The person's own file, if nothing else is named and it is there."""
    own = pathlib.Path(os.environ.get("HOME", "/"), ".kube", "config")
    return None if os.environ.get("KUBECONFIG") or not own.exists() else str(own)


def _told(error: kube_errors.KubeError) -> CannotRead:
    said = error.message if isinstance(error, kube_errors.ApiError) else ""
    advice = (text for kind, text in _ADVICE.items() if isinstance(error, kind))
    instead = error.instead or next(advice, "check the kubeconfig and its context")
    return CannotRead(error.what, words=said or str(error), instead=instead)
