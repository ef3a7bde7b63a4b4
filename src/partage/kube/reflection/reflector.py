"""A reflector keeps a sink equal to a collection of the API server, for ever.

It lists, then watches from the version of the list, and starts over when the server no longer keeps
the version it is at. It holds no objects: each is decoded into the caller's struct, put, and
forgotten; what the sink has is the only copy.

The list comes as a stream (`sendInitialEvents`), object by object, and turns into the watch without
a seam; where the server refuses that, it comes in pages. Either way it is a consistent read, never
an old one from a cache, because a leader that has just taken over must not decide on the past.

What vanished between two watches is found by difference: the keys that the sink had *before* the
list was asked for, less those that the list names, are dropped when the list is complete. Keys that
come in on other ways meanwhile are younger than the question and stay.

Failures of server and network end in a log line and a retry. Errors of the sink are programming
errors and end `run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, NoReturn, TypeVar

import msgspec

from partage.kube import api, backoff, errors, stream_lines, wire
from partage.kube.reflection import intake

T = TypeVar("T")

_log = logging.getLogger(__name__)

_WATCH = {"watch": "true", "allowWatchBookmarks": "true"}
_STREAMED_LIST = {**_WATCH, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
_NOT_KNOWN = frozenset({400, 422})  # how servers refuse a streamed list
_LIFE_S = 240.0  # of a watch, and up to half as much again; the server ends it then
_BRIEF_S = 1.0  # a watch that ends sooner and brought nothing has failed
_MOST_REFUSALS = 3  # in a row; then the version to resume from may be what the server refuses
_NO_QUERY: Mapping[str, str] = {}

Sink = intake.Sink  # what callers have to provide


class Reflector(Generic[T]):
    """Keeps ``sink`` equal to the objects at ``path``; ``key`` is how the sink names an object."""

    def __init__(
        self,
        api: api.Api,
        path: str,
        form: type[T],
        sink: Sink[T],
        *,
        key: Callable[[T], str],
        query: Mapping[str, str] = _NO_QUERY,
        idle_s: float = api.IDLE_S,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.synced = asyncio.Event()  # a list was complete, and none was asked for since
        self._api = api
        self._path = path
        self._query = query
        self._intake = intake.Intake(path, form, sink, key=key, clock=clock)
        self._idle_s = idle_s
        self._clock = clock
        self._chance = chance
        self._sleep = sleep
        self._backoff = backoff.Backoff(clock=clock, chance=chance)
        self._streams = True  # until the server refuses a streamed list
        self._lists = 0
        self._refusals = 0  # by the server, in a row
        self._relist_asked = False
        self._interruptible: asyncio.Timeout | None = None
        self._version = ""  # to resume from; empty: list
        self._latest: msgspec.Raw | None = None  # the last object, if its version was not read yet
        self._lines: stream_lines.Lines | None = None
        self._left_on_page = 0

    @property
    def seen(self) -> int:
        """Objects received so far: listed, added, changed, deleted."""
        return self._intake.seen

    @property
    def unreadable(self) -> int:
        """Of these, the ones that were skipped."""
        return self._intake.unreadable

    @property
    def gaps(self) -> int:
        """How often the sink had to be compared with a new list."""
        return max(0, self._lists - 1)

    @property
    def waiting(self) -> int:
        """Events that have been received and not been put or dropped."""
        return self._left_on_page + (0 if self._lines is None else self._lines.waiting)

    async def run(self) -> NoReturn:
        """Reflect until cancelled."""
        try:
            while True:
                await self._interruptible_round()
        finally:
            self._interruptible = None

    def relist(self) -> None:
        """Ask for a list that is no older than this call; `synced` waits for it."""
        self._relist_asked = True
        self.synced.clear()
        if self._interruptible is not None and self._interruptible.when() is None:
            self._interruptible.reschedule(0.0)  # whatever goes on now ends at once

    async def _interruptible_round(self) -> None:
        try:
            async with asyncio.timeout(None) as interruptible:
                self._interruptible = interruptible
                await self._guarded_round()
        except TimeoutError:
            if not interruptible.expired():
                raise

    async def _guarded_round(self) -> None:
        try:
            await self._round()
        except errors.KubeError as error:
            self._refusals += isinstance(error, errors.ApiError)
            if self._refusals >= _MOST_REFUSALS or _position_is_lost(error):
                self._version, self._latest = "", None
            delay_s = self._backoff.after_failure_s(getattr(error, "retry_after_s", 0.0))
            _log.warning("%s; trying again in %.1f s", error.what, delay_s)
            await self._sleep(delay_s)

    async def _round(self) -> None:
        """A list and the watch that follows from it, or a watch that goes on."""
        version = self._resume_at()
        if self._relist_asked or not version:
            await self._list()
        else:
            await self._follow({**_WATCH, "resourceVersion": version})

    def _resume_at(self) -> str:
        # Read when a watch has ended and not for every event: it costs as much as the object.
        if self._latest is not None:
            self._version = wire.head(self._latest).metadata.resource_version
            self._latest = None
        return self._version

    async def _list(self) -> None:
        self._relist_asked = False
        self._version, self._latest = "", None
        self._intake.begin_list()
        if self._streams:
            await self._list_by_stream()
        else:
            await self._list_by_pages()

    async def _list_by_stream(self) -> None:
        try:
            await self._follow(_STREAMED_LIST)
        except errors.ApiError as error:
            if error.status not in _NOT_KNOWN or not self._intake.listing:
                raise
            _log.info("%s; from now on the list is read in pages", error.what)
            self._streams = False
            await self._list_by_pages()
            return
        if self._intake.listing:
            # Without the mark a list never ends. Pages need none.
            self._streams = False
            raise errors.BadAnswer(
                f"GET {self._path}: a streamed list ended without the bookmark at its end"
            )

    async def _list_by_pages(self) -> None:
        version = ""
        pages = self._api.pages(self._path, msgspec.Raw, query=self._query)
        async with contextlib.aclosing(pages):
            async for page in pages:
                version = page.resource_version
                await self._take_page(page.items)
        await self._complete(version)

    async def _take_page(self, items: list[msgspec.Raw]) -> None:
        try:
            for taken, item in enumerate(items, 1):
                self._left_on_page = len(items) - taken
                await self._intake.take(item)
        finally:
            self._left_on_page = 0

    async def _follow(self, query: Mapping[str, str]) -> None:
        """Take in a watch until the server ends it."""
        life_s = _LIFE_S * (1 + self._chance() / 2)
        query = {**self._query, **query, "timeoutSeconds": str(int(life_s))}
        opened_at = self._clock()
        async with self._api.stream(self._path, query, idle_s=self._idle_s) as stream:
            if not self._intake.listing:
                self._backoff.well()
            events = await self._take_lines(stream)
        if not events and self._clock() - opened_at < _BRIEF_S:
            raise errors.Unreachable(f"GET {self._path}: the watch ended at once", sent=True)

    async def _take_lines(self, stream: stream_lines.Lines) -> int:
        events = 0
        self._lines = stream
        try:
            async for line in stream:
                events += 1
                await self._take_line(line)
                self._refusals = 0
        finally:
            self._lines = None
        return events

    async def _take_line(self, line: bytes) -> None:
        event = self._event(line)
        match event.type:
            case "ADDED" | "MODIFIED" | "DELETED":
                await self._take_object(event)
            case "BOOKMARK":
                await self._take_bookmark(event.object)
            case "ERROR":
                raise self._error(event.object)
            case other:
                raise errors.BadAnswer(f"GET {self._path}: unknown event {other!r}")

    def _event(self, line: bytes) -> wire.Event:
        try:
            return wire.read_event(line)
        except wire.UNREADABLE as error:
            raise errors.BadAnswer(f"GET {self._path}: a line is not a watch event") from error

    async def _take_object(self, event: wire.Event) -> None:
        await self._intake.take(event.object, deleted=event.type == "DELETED")
        if not self._intake.listing:  # objects of a list come in no order: no place to resume from
            self._latest = event.object

    def _error(self, raw: msgspec.Raw) -> errors.KubeError:
        try:
            status = msgspec.json.decode(raw, type=wire.Status)
        except wire.UNREADABLE:
            return errors.BadAnswer(f"GET {self._path}: the watch failed without a reason")
        return errors.from_status(status, request=f"GET {self._path}")

    async def _take_bookmark(self, raw: msgspec.Raw) -> None:
        mark = wire.head(raw)
        version = mark.metadata.resource_version
        if not self._intake.listing:
            self._version, self._latest = version, None
        elif mark.ends_list:
            await self._complete(version)

    async def _complete(self, version: str) -> None:
        """The list is complete: what it did not name is gone."""
        if not version:
            raise errors.BadAnswer(f"GET {self._path}: a list without a version")
        await self._intake.end_list()
        self._version = version
        self._refusals = 0
        self._lists += 1
        self._backoff.well()
        if not self._relist_asked:
            self.synced.set()


def _position_is_lost(error: errors.KubeError) -> bool:
    """Whether resuming at the same version would fail again, or leave something out."""
    if isinstance(error, errors.ApiError):
        return error.status in {400, 410}
    return isinstance(error, errors.BadAnswer)
