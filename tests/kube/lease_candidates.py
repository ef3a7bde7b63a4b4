"""Candidates for a lease, the server that keeps it, and a time that is advanced by hand."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import heapq
import itertools
from collections.abc import AsyncIterator
from typing import Any, Self

import msgspec

from partage.kube import api, lease
from partage.kube.auth import credentials, logins
from tests.kube import api_clients, scripted_server

FOLDER = "/apis/coordination.k8s.io/v1/namespaces/gpu-system/leases"
PATH = f"{FOLDER}/scheduler"
NOON = dt.datetime(2026, 5, 1, 12, 0, 0, 5, tzinfo=dt.UTC)


class Time:
    """Stands still but in `pass_s`, where all who sleep are woken in their order."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.candidates = 0
        self._sleeping: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def clock(self) -> float:
        """A clock that counts from anywhere."""
        return self.now_s

    def wall(self) -> dt.datetime:
        """The time of day."""
        return NOON + dt.timedelta(seconds=self.now_s)

    async def sleep(self, delay_s: float) -> None:
        """Sleep until that time is passed."""
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleeping, (self.now_s + delay_s, next(self._order), woken))
        await woken

    async def settle(self) -> None:
        """Wait until every candidate sleeps."""
        async with asyncio.timeout(30):
            while len(self._asleep()) != self.candidates:  # noqa: ASYNC110 (who is next, is open)
                await asyncio.sleep(0)

    async def pass_s(self, duration_s: float) -> None:
        """Let time pass, and let everybody do what is due."""
        end_s = self.now_s + duration_s
        await self.settle()
        while (asleep := self._asleep()) and asleep[0][0] <= end_s:
            self.now_s, _, woken = heapq.heappop(self._sleeping)
            woken.set_result(None)
            await self.settle()
        self.now_s = max(self.now_s, end_s)

    def _asleep(self) -> list[tuple[float, int, asyncio.Future[None]]]:
        # A sleeper that was cancelled does not count.
        self._sleeping = [entry for entry in self._sleeping if not entry[2].done()]
        heapq.heapify(self._sleeping)
        return self._sleeping


class Keeper:
    """The API server, as far as one Lease goes: versions, conflicts, and outages."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.outage: scripted_server.Step | None = None  # answers everything
        self.cut_off: set[str] = set()  # candidates whose requests do not arrive
        self.loses_answers = False  # writes are done, but nobody hears of it
        self._version = 0

    @property
    def spec(self) -> dict[str, Any]:
        """The record."""
        assert self.stored is not None
        spec: dict[str, Any] = self.stored["spec"]
        return spec

    def store(self, lease: dict[str, Any]) -> scripted_server.Answer:
        """Write without asking."""
        self._version += 1
        lease["metadata"]["resourceVersion"] = str(self._version)
        self.stored = lease
        return scripted_server.Answer(lease)

    def respond(self, request: scripted_server.Request) -> scripted_server.Step:
        """Answer like an API server."""
        if self.outage is not None:
            return self.outage
        if request.headers.get("Authorization") in self.cut_off:
            return scripted_server.Hangup()
        if request.verb == "GET":
            return (
                scripted_server.Answer(self.stored)
                if self.stored
                else scripted_server.refusal(404, "NotFound")
            )
        if request.verb == "PUT" and self.stored is None:
            return scripted_server.refusal(404, "NotFound")
        sent = msgspec.json.decode(request.body)
        before = self.stored["metadata"]["resourceVersion"] if self.stored else None
        if sent["metadata"].get("resourceVersion") != before:
            return scripted_server.refusal(409, "Conflict")
        answer = self.store(sent)
        return scripted_server.Hangup() if self.loses_answers else answer


class Stage:
    """A keeper, and candidates that come and go, each with a connection of its own."""

    def __init__(self, server: scripted_server.Server) -> None:
        self.keeper = Keeper()
        self.time = Time()
        self.server = server
        self._clients = contextlib.AsyncExitStack()
        server.respond = self.keeper.respond

    async def __aenter__(self) -> Self:
        """Empty."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._clients.aclose()

    async def candidate(self, identity: str, **annotations: str) -> lease.Lease:
        """One that does not run yet, and what it would tell of itself."""
        login = credentials.Credentials(self.server.url, login=logins.Fixed(identity))
        return lease.Lease(
            await self._clients.enter_async_context(api.Api(login)),
            namespace="gpu-system",
            name="scheduler",
            identity=identity,
            annotations=annotations,
            clock=self.time.clock,
            now=self.time.wall,
            sleep=self.time.sleep,
        )

    @contextlib.asynccontextmanager
    async def running(self, *crowd: lease.Lease) -> AsyncIterator[None]:
        """Let them run; begins when all have had their first try."""
        async with contextlib.AsyncExitStack() as stack:
            for candidate in crowd:
                await stack.enter_async_context(api_clients.running(candidate.run()))
            self.time.candidates += len(crowd)
            await self.time.settle()
            try:
                yield
            finally:
                self.time.candidates -= len(crowd)

    @contextlib.asynccontextmanager
    async def competing(self, identity: str, **annotations: str) -> AsyncIterator[lease.Lease]:
        """A new one that runs."""
        made = await self.candidate(identity, **annotations)
        async with self.running(made):
            yield made


def leads(candidate: lease.Lease) -> bool:
    """Whether it leads; when all is settled, the event must agree with the clock."""
    assert candidate.acquired.is_set() == candidate.leading
    return candidate.leading
