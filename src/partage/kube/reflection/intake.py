"""Intake: objects of a list or a watch into a sink.

Decodes each object into the caller's struct and hands it on, without keeping it. While a list comes
in it knows the keys that the sink had when the list was asked for and that the list has not named
yet; those left at its end are gone, and are dropped then and not before.

An object that cannot be read is counted, logged and skipped. It exists all the same: what the sink
has of it stays, although it is old, because to drop it would free what it uses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar

import msgspec

from partage.kube import wire

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_log = logging.getLogger(__name__)

_BREATH_EVENTS = 50
_BREATH_S = 0.002


class Sink(Protocol[T_contra]):
    """Where the objects go."""

    def put(self, item: T_contra, /) -> None:
        """It is there now: added, changed, or as before."""

    def drop(self, key: str, /) -> None:
        """It is gone: deleted, or missing after a gap; perhaps it was never put."""

    def keys(self) -> Collection[str]:
        """What the sink believes to be there."""


class Intake(Generic[T]):
    """Fills one sink with what comes from one path."""

    def __init__(
        self,
        path: str,
        form: type[T],
        sink: Sink[T],
        *,
        key: Callable[[T], str],
        clock: Callable[[], float],
    ) -> None:
        self.seen = 0
        self.unreadable = 0
        self._path = path
        self._read = msgspec.json.Decoder(form).decode
        self._sink = sink
        self._key = key
        self._clock = clock
        self._unnamed: set[str] | None = None  # while listing
        self._breath_at = clock()
        self._breath_events = 0

    @property
    def listing(self) -> bool:
        """Whether a list was begun and is not complete."""
        return self._unnamed is not None

    def begin_list(self) -> None:
        """A list is about to be asked for."""
        self._unnamed = set(self._sink.keys())

    async def end_list(self) -> None:
        """The list is complete: what it did not name is gone."""
        for key in self._unnamed or ():
            self._sink.drop(key)
            await self._breathe()
        self._unnamed = None

    async def take(self, raw: msgspec.Raw, *, deleted: bool = False) -> None:
        """Put an object, or drop it."""
        self.seen += 1
        try:
            item = self._read(raw)
        except wire.UNREADABLE as error:
            self._skip(raw, error, deleted=deleted)
        else:
            self._hand_on(item, deleted=deleted)
        await self._breathe()

    def _hand_on(self, item: T, *, deleted: bool) -> None:
        key = self._key(item)
        if self._unnamed is not None:
            self._unnamed.discard(key)
        if deleted:
            self._sink.drop(key)
        else:
            self._sink.put(item)

    def _skip(self, raw: msgspec.Raw, why: Exception, *, deleted: bool) -> None:
        self.unreadable += 1
        head = wire.head(raw)
        _log.warning("GET %s: %s cannot be read and is skipped: %s", self._path, head.name, why)
        # How the key is made is up to the caller, and needs the object that could not be read. But
        # keys are names or uids, and these can be read.
        if self._unnamed is not None:
            self._unnamed -= head.aliases
        if deleted:
            for key in head.aliases.intersection(self._sink.keys()):
                self._sink.drop(key)

    async def _breathe(self) -> None:
        """Let others run every few objects: a burst must not stop the process."""
        self._breath_events += 1
        if self._breath_events < _BREATH_EVENTS and self._clock() - self._breath_at < _BREATH_S:
            return
        await asyncio.sleep(0)
        self._breath_events = 0
        self._breath_at = self._clock()
