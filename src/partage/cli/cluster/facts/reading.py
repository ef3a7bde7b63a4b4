"""Reading parts of a cluster, each by itself: what is forbidden or fails is left out, and told.

A doctor who gives up at the first door is of little use. Only where nothing answers at all, or the
login is not accepted, the error goes on: then there is nothing to look at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

from partage.cli.cluster.facts import cluster_facts
from partage.kube import api as kube
from partage.kube import errors as kube_errors

T = TypeVar("T")

_TRIES = 3
_LONGEST_WAIT_S = 5.0
_NO_QUERY: Mapping[str, str] = {}


class Reader:
    """Reads parts, and remembers which could not be read."""

    def __init__(self, api: kube.Api, tell: Callable[[str], None]) -> None:
        self.api = api
        self.unread: list[cluster_facts.Unread] = []
        self._tell = tell
        self._answered = False

    async def part(self, name: str, right: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """What ``work`` reads; None if it cannot be read. ``right`` is what it needs."""
        self._tell(name)
        try:
            read = await _patiently(work)
        except kube_errors.Unauthorized:
            raise
        except kube_errors.KubeError as error:
            self._answered |= isinstance(error, kube_errors.ApiError)
            if not self._answered:
                raise
            self._leave_out(name, right, error)
            return None
        self._answered = True
        return read

    async def listed(
        self, path: str, form: type[T], *, what: str = "", query: Mapping[str, str] = _NO_QUERY
    ) -> AsyncIterator[T]:
        """The objects of a list, page by page; ``what`` they are is shown with their number."""
        count = 0
        async for page in self.api.pages(path, form, query=query):
            count += len(page.items)
            if what:
                self._tell(f"{what}: {count:,}")
            for item in page.items:
                yield item

    async def present(self, path: str, form: type[T]) -> T | None:
        """One object; None if it does not exist."""
        try:
            return await self.api.get(path, form)
        except kube_errors.NotFound:
            return None

    def leave_out(self, name: str, why: str, remedy: str) -> None:
        """A part could not be read for another reason."""
        self.unread.append(cluster_facts.Unread(name, why, remedy))

    def _leave_out(self, name: str, right: str, error: kube_errors.KubeError) -> None:
        if isinstance(error, kube_errors.Forbidden):
            self.leave_out(name, error.message or error.what, f"allow {right} (deploy/doctor.yaml)")
        else:
            instead = error.instead or "check the API server, then try again"
            self.leave_out(name, error.what, instead)


async def _patiently(work: Callable[[], Awaitable[T]]) -> T:
    """What ``work`` reads, if need be once more: a list expires, and a server may be busy."""
    for _ in range(_TRIES - 1):
        try:
            return await work()
        except (kube_errors.Gone, kube_errors.TooManyRequests) as error:
            await asyncio.sleep(min(error.retry_after_s, _LONGEST_WAIT_S))
    return await work()
