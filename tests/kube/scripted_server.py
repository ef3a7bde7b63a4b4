"""A small real HTTP server that answers by a script, and remembers what it was asked.

Each request takes the next step of the script. When the script is over, requests get a watch that
stays open and silent, so a client under test comes to rest instead of failing.
"""

from __future__ import annotations

import asyncio
import collections
import ssl
from collections.abc import Callable, Mapping
from typing import Self

import msgspec
from aiohttp import web


class Request(msgspec.Struct, frozen=True):
    """What the client sent."""

    verb: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class Answer(msgspec.Struct, frozen=True):
    """A whole answer; a body that is no bytes is sent as JSON."""

    body: object = {}
    status: int = 200
    headers: Mapping[str, str] = {}

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send it."""
        body = self.body if isinstance(self.body, bytes) else msgspec.json.encode(self.body)
        return web.Response(status=self.status, body=body, headers=dict(self.headers))


def refusal(code: int, reason: str, message: str = "", **headers: str) -> Answer:
    """A Status, as the API server says no."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return Answer(body, code, {name.replace("_", "-"): value for name, value in headers.items()})


class Watch:
    """A watch that stays open until it is told to end or to crash."""

    def __init__(self, *events: object) -> None:
        self._queue: asyncio.Queue[bytes | ConnectionError | None] = asyncio.Queue()
        for event in events:
            self.send(event)

    def send(self, event: object) -> Self:
        """One event, on a line of its own."""
        return self.send_bytes(msgspec.json.encode(event) + b"\n")

    def send_bytes(self, chunk: bytes) -> Self:
        """Bytes as they are."""
        self._queue.put_nowait(chunk)
        return self

    def end(self) -> Self:
        """End as a server does whose watch has lived long enough."""
        self._queue.put_nowait(None)
        return self

    def crash(self) -> Self:
        """Cut the connection in the middle."""
        self._queue.put_nowait(ConnectionError())
        return self

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send what is told."""
        response = web.StreamResponse()
        await response.prepare(request)
        while (item := await self._queue.get()) is not None:
            if isinstance(item, ConnectionError):
                assert request.transport is not None
                request.transport.abort()
                break
            await response.write(item)
        return response


class Silence:
    """No answer at all, not even headers."""

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Wait for ever."""
        await asyncio.Event().wait()
        raise AssertionError


class Hangup:
    """The connection is closed in place of an answer."""

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Close it."""
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


Step = Answer | Watch | Silence | Hangup


class Server:
    """The server; ``script`` can be extended at any time, or replaced by ``respond``."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.certificates: list[object] = []  # the client's, for each request
        self.ports: set[int] = set()  # the client's
        self.url = ""
        self.respond: Callable[[Request], Step] = self._next_step
        self._script: collections.deque[Step] = collections.deque()
        self._tls = tls
        handlers = web.Server(self._handle, handler_cancellation=True)
        self._runner = web.ServerRunner(handlers, shutdown_timeout=0.01)

    async def __aenter__(self) -> Self:
        """Listen on some port of the loopback interface."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close everything."""
        await self._runner.cleanup()

    def script(self, *steps: Step) -> None:
        """What to answer next."""
        self._script.extend(steps)

    @property
    def finished(self) -> bool:
        """Whether all of the script was asked for."""
        return not self._script

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        received = Request(
            request.method,
            request.path,
            dict(request.query),
            dict(request.headers),
            await request.read(),
        )
        self.requests.append(received)
        assert request.transport is not None
        self.certificates.append(request.transport.get_extra_info("peercert"))
        self.ports.add(request.transport.get_extra_info("peername")[1])
        return await self.respond(received).serve(request)

    def _next_step(self, _: Request) -> Step:
        return self._script.popleft() if self._script else Watch()


async def until(condition: Callable[[], object], *, within_s: float = 30.0) -> None:
    """Wait for what the client and the server do by themselves."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 (the condition may be anything)
            await asyncio.sleep(0.001)
