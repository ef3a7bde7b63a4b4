"""A lease: of several processes one leads, and each knows for itself whether it still does.

The rules are client-go's. The holder renews a Lease object; others read it, and take it over when
its record has not changed for as long as it holds, by their own clock, since the clocks of two
machines cannot be compared. Every write carries the `resourceVersion` that was read, so if two take
over at once, one of them fails.

The holder counts its time from *before* it sent the last renewal that succeeded; the others count
from after they saw it. So it stops leading before anybody else can begin, even if it hears nothing
from the server any more. A write whose outcome is unknown counts for nothing.

What it does not do: guard against two processes of one identity (take one that is made anew with
each process), or against people who delete the Lease object while a process leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

import msgspec

from partage.kube import api, errors

_log = logging.getLogger(__name__)


_NOTHING: Mapping[str, str] = {}


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Lease:
    """One candidate. Wait on ``acquired``, but ask `leading` or `left_s` before each deed."""

    def __init__(
        self,
        api: api.Api,
        *,
        namespace: str,
        name: str,
        identity: str,
        annotations: Mapping[str, str] = _NOTHING,
        duration_s: float = 15.0,
        renew_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], dt.datetime] = _utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.acquired = asyncio.Event()  # set while leading
        self.term = 0  # how often we began to lead: work of an earlier term is not to be finished
        # Whether the holder before us gave it back, with all its work done. A replica that led
        # before may have work of its own under way, so for it this is never true.
        self.given = False
        self._api = api
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._folder}/{name}"
        self._names = {"namespace": namespace, "name": name}
        self._annotations = annotations  # what the holder tells of itself
        self._identity = identity
        self._duration_s = duration_s
        self._renew_s = renew_s
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._renewed_at: float | None = None  # when the last renewal that succeeded was begun
        self._record: _Record | None = None  # as last seen
        self._changed_at = 0.0  # when its spec was first seen

    @property
    def leading(self) -> bool:
        """Whether we lead, by our own clock."""
        return self.left_s() > 0

    def left_s(self) -> float:
        """For how long we are sure to lead without hearing from the server; at most 0: not now."""
        if self._renewed_at is None:
            return 0.0
        return self._renewed_at + self._duration_s - self._clock()

    async def run(self) -> NoReturn:
        """Compete, and renew, until cancelled; the lease is held on until it expires."""
        while True:
            await self._compete()
            await self._sleep(min(self._renew_s, self.left_s()) if self.leading else self._renew_s)
            self._notice()

    async def release(self) -> None:
        """Stop leading and let another take over at once; to be called when `run` has ended."""
        self._lose()
        try:
            async with asyncio.timeout(self._patience_s()):
                await self._give_back()
        except (errors.KubeError, TimeoutError) as error:
            _log.warning(
                "lease %s was not given back, so it lasts until it expires: %s",
                *(self._path, _reason(error)),
            )

    async def _compete(self) -> None:
        try:
            async with asyncio.timeout(self._patience_s()):
                await self._hold()
        except errors.Conflict as error:
            _log.info("lease %s: another replica was quicker: %s", self._path, error)
        except (errors.KubeError, TimeoutError) as error:
            _log.warning(
                "lease %s was not renewed and lasts for another %.1f s: %s",
                *(self._path, max(0.0, self.left_s()), _reason(error)),
            )
        self._notice()

    def _patience_s(self) -> float:
        # A request that hangs must leave time for another, and must not hide that time is up.
        longest_s = self._duration_s / 3
        return min(longest_s, self.left_s()) if self.leading else longest_s

    def _notice(self) -> None:
        """Say it when we began or ceased to lead."""
        if self.leading == self.acquired.is_set():
            return
        if self.leading:
            _log.info("lease %s: %s leads now", self._path, self._identity)
            self.term += 1
            self.acquired.set()
        else:
            _log.warning("lease %s: %s does not lead any more", self._path, self._identity)
            self.acquired.clear()

    async def _hold(self) -> None:
        """Renew the lease, or take it if that is allowed."""
        if self.leading and self._record is not None:
            with contextlib.suppress(errors.Conflict, errors.NotFound):
                await self._write(self._record)
                return
        try:
            record = self._seen(await self._api.get(self._path, _Record))
        except errors.NotFound:
            self._lose()
            # Somebody deleted it, and its holder may not have noticed yet.
            if self._record is None or self._may_take(self._record.spec):
                await self._create()
            return
        if record.spec.holder_identity != self._identity:
            self._lose()  # another replica holds it, or may have led and given it back
        if self._may_take(record.spec):
            await self._write(record)
            if not self.acquired.is_set():
                self.given = record.spec.holder_identity == "" and self.term == 0

    def _lose(self) -> None:
        self._renewed_at = None
        self._notice()

    def _seen(self, record: _Record) -> _Record:
        if self._record is None or self._record.spec != record.spec:
            self._changed_at = self._clock()
        self._record = record
        return record

    def _may_take(self, spec: _Spec) -> bool:
        if not spec.holder_identity or spec.holder_identity == self._identity:
            return True
        # A holder that was configured otherwise relies on what it wrote.
        holds_s = max(self._duration_s, spec.lease_duration_seconds or 0)
        return self._clock() - self._changed_at >= holds_s

    async def _create(self) -> None:
        began_at = self._clock()
        metadata = self._told(msgspec.Raw(msgspec.json.encode(self._names)))
        record = _Record(metadata, self._held(None))
        await self._api.create(self._folder, record)
        self._record = None  # the next renewal reads it
        self._renewed_at = began_at
        self.given = False  # the holder before us did not give it back

    async def _write(self, record: _Record) -> None:
        began_at = self._clock()
        taken = record.spec.holder_identity != self._identity
        metadata = self._told(record.metadata) if taken else record.metadata
        held = _Record(metadata, self._held(record.spec))
        self._seen(await self._api.replace(self._path, held, _Record))
        self._renewed_at = began_at

    def _told(self, metadata: msgspec.Raw) -> msgspec.Raw:
        """The metadata with our own annotations in the place of the holder's before us."""
        if not self._annotations:
            return metadata
        fields = msgspec.json.decode(metadata, type=dict[str, Any])
        fields["annotations"] = {**(fields.get("annotations") or {}), **self._annotations}
        return msgspec.Raw(msgspec.json.encode(fields))

    def _held(self, before: _Spec | None) -> _Spec:
        """The record of us as holder."""
        now = _written(self._now())
        if before is None:
            return self._spec(acquired=now, renewed=now, transitions=0)
        transitions = before.lease_transitions or 0
        if before.holder_identity == self._identity:
            return self._spec(acquired=before.acquire_time, renewed=now, transitions=transitions)
        return self._spec(acquired=now, renewed=now, transitions=transitions + 1)

    def _spec(self, *, acquired: str | None, renewed: str, transitions: int) -> _Spec:
        return _Spec(
            holder_identity=self._identity,
            lease_duration_seconds=math.ceil(self._duration_s),
            acquire_time=acquired,
            renew_time=renewed,
            lease_transitions=transitions,
        )

    async def _give_back(self) -> None:
        record = await self._api.get(self._path, _Record)
        if record.spec.holder_identity != self._identity:
            return
        now = _written(self._now())
        free = msgspec.structs.replace(
            record.spec,
            holder_identity="",
            lease_duration_seconds=1,
            acquire_time=now,
            renew_time=now,
        )
        await self._api.replace(self._path, _Record(record.metadata, free), _Record)


class _Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    metadata: msgspec.Raw  # given back as it came: holds the resourceVersion, and others' labels
    spec: _Spec = _Spec()
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


def _reason(error: Exception) -> str:
    return str(error) or "the API server did not answer in time"


def _written(time: dt.datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
