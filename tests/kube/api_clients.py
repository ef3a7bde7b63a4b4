"""Clients of a scripted server, reflectors of its things, and a clock that only sleeping moves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Mapping

from partage.kube import api
from partage.kube.auth import credentials
from partage.kube.reflection import reflector
from tests.kube import scripted_server, things


class QuickTime:
    """A clock that only sleeping moves, and sleep that takes no time."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        """What time it is."""
        return self.now_s

    async def sleep(self, delay_s: float) -> None:
        """Time passes at once."""
        self.slept.append(delay_s)
        self.now_s += delay_s
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def connected(server: scripted_server.Server) -> AsyncIterator[api.Api]:
    """A client of this server that needs no login."""
    async with api.Api(credentials.Credentials(server.url), timeout_s=5.0) as client:
        yield client


@contextlib.asynccontextmanager
async def running(job: Coroutine[object, object, object]) -> AsyncIterator[asyncio.Task[object]]:
    """A task for the length of a block; its own failure is the block's."""
    task = asyncio.ensure_future(job)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def reflector_of(
    client: api.Api,
    shelf: reflector.Sink[things.Thing],
    time: QuickTime,
    *,
    query: Mapping[str, str] | None = None,
    idle_s: float = 5.0,
) -> reflector.Reflector[things.Thing]:
    """A reflector whose delays are the shortest and take no time."""
    return reflector.Reflector(
        client,
        things.PATH,
        things.Thing,
        shelf,
        key=lambda item: item.key,
        query=query or {},
        idle_s=idle_s,
        clock=time.clock,
        chance=lambda: 0.0,
        sleep=time.sleep,
    )


@contextlib.asynccontextmanager
async def reflecting(
    client: api.Api,
    shelf: reflector.Sink[things.Thing],
    time: QuickTime,
    *,
    query: Mapping[str, str] | None = None,
    idle_s: float = 5.0,
) -> AsyncIterator[reflector.Reflector[things.Thing]]:
    """Such a reflector at work."""
    made = reflector_of(client, shelf, time, query=query, idle_s=idle_s)
    async with running(made.run()):
        yield made
