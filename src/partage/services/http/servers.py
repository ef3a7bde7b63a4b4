"""Servers: all clients of one address, and the end of everything.

Times are looked at in one place, twice a second for all connections, in place of a timer for each
request. At the end no new client is let in, idle connections are closed, and what is under
way is brought to its end, whether or not its client is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable

from partage.services import listener
from partage.services.http import allowances, connections, messages, routes

_BUFFER_BYTES = 256 << 10
_BREAK_S = 1.0  # for what was broken off to end


@contextlib.asynccontextmanager
async def at(
    address: listener.Address, site: routes.Routes, bounds: allowances.Limits | None = None
) -> AsyncIterator[str]:
    """Listen, and yield the URL; in the end, requests under way are finished."""
    server = Server(site, bounds or allowances.Limits())
    port = await server.listen(address)
    try:
        yield f"{'https' if address.tls else 'http'}://{address.host}:{port}"
    finally:
        await server.close()


class Server:
    """All connections, and the answers that are under way."""

    def __init__(self, site: routes.Routes, bounds: allowances.Limits) -> None:
        self.site = site
        self.bounds = bounds
        self.permits = allowances.Permits(bounds.large_bodies)
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        self.date = messages.date(time.time())
        self.ending = False
        self.connections: set[connections.Connection] = set()
        self._tasks: set[asyncio.Task[messages.Answer]] = set()
        self._empty = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._listening: asyncio.Server | None = None
        self._ticking: asyncio.TimerHandle | None = None

    async def listen(self, address: listener.Address) -> int:
        """Begin to listen; the answer is the port."""
        tls = address.tls
        try:
            self._listening = await self._loop.create_server(
                lambda: connections.Connection(self),
                address.host,
                address.port,
                ssl=tls,
                ssl_handshake_timeout=self.bounds.handshake_s if tls else None,
                ssl_shutdown_timeout=self.bounds.linger_s if tls else None,
            )
        except OSError as error:
            raise listener.refused(address, error) from error
        self._tick()
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Answer what was asked, and end; waits no longer than the grace."""
        self.ending = True
        if self._listening is not None:
            self._listening.close()
        for connection in list(self.connections):
            connection.end()
        self._check_empty()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), self.bounds.grace_s)
        await self._break_off()

    def arrived(self, connection: connections.Connection) -> None:
        """A client has connected; if there are too many, the longest silent one is closed."""
        if len(self.connections) >= self.bounds.connections:
            idle = [candidate for candidate in self.connections if candidate.idle]
            if not idle:
                connection.abort()
                return
            min(idle, key=lambda candidate: candidate.deadline_s).abort()
        self.connections.add(connection)

    def left(self, connection: connections.Connection) -> None:
        """A client has disconnected."""
        self.connections.discard(connection)
        self._check_empty()

    def start(self, coming: Awaitable[messages.Answer]) -> asyncio.Task[messages.Answer]:
        """Go on with an answer that takes its time; it ends by itself, or with the server."""
        task = asyncio.ensure_future(coming)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[messages.Answer]) -> None:
        self._tasks.discard(task)
        self._check_empty()

    def _check_empty(self) -> None:
        if self.ending and not self.connections and not self._tasks:
            self._empty.set()

    def _tick(self) -> None:
        """Look at all times, and at the clock for the answers' date."""
        self.date = messages.date(time.time())
        now_s = time.perf_counter()
        for connection in list(self.connections):
            connection.expire(now_s)
        self._ticking = self._loop.call_later(self.bounds.tick_s, self._tick)

    async def _break_off(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        for connection in list(self.connections):
            connection.abort()
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), _BREAK_S)
