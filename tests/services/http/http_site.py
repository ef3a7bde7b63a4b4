"""A site that answers requests over HTTP, and a socket to send them by."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec

from partage.services import listener
from partage.services.http import allowances, messages, routes, servers

ANY = listener.Address("127.0.0.1", 0)


class Site:
    """Routes of every kind, and what happened at them."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.gone: list[routes.Gone] = []
        self.ended: list[bytes] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.routes = routes.Routes(gone=self.gone.append)
        self.routes.post("/echo", self._echo, _in_its_own_form)
        self.routes.post("/later", self._later, _in_its_own_form)
        self.routes.post("/broken", _broken, _in_its_own_form)
        self.routes.post("/broken-later", _broken_later, _in_its_own_form)
        self.routes.get("/fixed", lambda _: messages.Answer(b"fixed", content_type=messages.TEXT))
        self.routes.get("/large", lambda _: messages.Answer(b"x" * (4 << 20)))
        self.routes.get("/said/{one}/{two}", _said)

    def _echo(self, request: messages.Request) -> messages.Answer:
        self.bodies.append(request.body)
        return messages.Answer(request.body)

    async def _later(self, request: messages.Request) -> messages.Answer:
        self.begun.set()
        await self.go_on.wait()
        self.ended.append(request.body)
        return messages.Answer(b"later " + request.body)


def _in_its_own_form(_status: int, text: str) -> messages.Answer:
    return messages.Answer(msgspec.json.encode({"Error": text}))


def _said(request: messages.Request) -> messages.Answer:
    return messages.Answer(msgspec.json.encode(request.arguments))


def _broken(_request: messages.Request) -> messages.Answer:
    raise RuntimeError("secret")


async def _broken_later(_request: messages.Request) -> messages.Answer:
    await asyncio.sleep(0)
    raise RuntimeError("secret")


class Raw:
    """A connection on which any bytes can be sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def rest(self) -> bytes:
        """All that comes until the server ends the connection, however it does that."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while piece := await self.reader.read(1 << 16):
                received += piece
        return received

    async def close(self) -> None:
        """End it."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def served(
    site: Site, bounds: allowances.Limits | None = None
) -> AsyncIterator[tuple[servers.Server, int]]:
    """A server, and its port."""
    server = servers.Server(site.routes, bounds or allowances.Limits(tick_s=0.02))
    port = await server.listen(ANY)
    try:
        yield server, port
    finally:
        site.go_on.set()
        await server.close()


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Raw]:
    """A raw connection."""
    raw = Raw(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield raw
    finally:
        await raw.close()


@contextlib.asynccontextmanager
async def asking(site: Site, bounds: allowances.Limits | None = None) -> AsyncIterator[Raw]:
    """A raw connection to a server of its own."""
    async with served(site, bounds) as (_, port), connected(port) as raw:
        yield raw


def post(path: str, body: bytes, *headers: str) -> bytes:
    """A request with a length."""
    lines = (f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers)
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    """A request without a body."""
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: x", *headers, "", "")).encode()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what happens elsewhere in the loop."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 -- nobody sets an event for it
            await asyncio.sleep(0.01)
