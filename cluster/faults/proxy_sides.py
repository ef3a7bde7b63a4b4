"""The two sides of a proxy in front of the API server, and what passes between them.

:class:`ClientSide` is where clients come in, :class:`ServerSide` leads to the server. The
proxy itself, which decides what happens in between, is :mod:`cluster.faults.fault_proxy`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import weakref
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yarl
from aiohttp import web

from cluster import child_processes
from partage.kube import open_sockets

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_BACKLOG = 128
_KEEP_ALIVE_S = 3600.0
_POLL_S = 0.01
_OF_ONE_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
_NOT_OURS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")  # for the client to choose


class ClientSide:
    """Where clients come in; it may be shut and opened again on the same port."""

    def __init__(self, port: int, handler: Handler, pair: tuple[Path, Path]) -> None:
        self._port = port
        self._handler = handler
        self._pair = pair
        self._protocol: web.Server | None = None
        self._listening: asyncio.Server | None = None
        self._clients: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    async def open(self) -> None:
        """Let clients in."""
        if self._listening is not None:
            return
        if self._protocol is None:
            self._protocol = web.Server(
                self._handler, access_log=None, keepalive_timeout=_KEEP_ALIVE_S
            )
        address = (child_processes.LOOPBACK, self._port)
        self._listening = await asyncio.get_running_loop().create_server(
            self._protocol,
            sock=_Listener(address, self._clients),
            ssl=self._context(),
            backlog=_BACKLOG,
        )

    async def shut(self) -> None:
        """Refuse clients, those too that are in."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        await self.cut()

    async def cut(self) -> None:
        """End all connections, without a word."""
        for connection in [] if self._protocol is None else self._protocol.connections:
            if connection.transport is not None:
                connection.transport.abort()
        for client in list(self._clients):  # also those in the middle of a handshake
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        """Refuse clients, and wait until the last one is gone."""
        await self.shut()
        while any(c.fileno() >= 0 for c in list(self._clients)):  # noqa: ASYNC110 -- no event
            await asyncio.sleep(_POLL_S)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._pair)
        return context


class _Listener(socket.socket):
    """Knows whom it has let in: asyncio shows a client only when its handshake has ended."""

    def __init__(self, address: tuple[str, int], clients: weakref.WeakSet[socket.socket]) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self._clients = clients
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.bind(address)

    def accept(self) -> tuple[socket.socket, Any]:
        """The next client, which is remembered."""
        client, address = super().accept()
        self._clients.add(client)
        return client, address


class ServerSide:
    """The API server, as the proxy reaches it."""

    def __init__(self, server: str, certificate: Path) -> None:
        self._server = server
        self._certificate = certificate
        self._sockets = open_sockets.Sockets()
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make ready; connections are made when needed, however many at once."""
        trust = ssl.create_default_context(cadata=self._certificate.read_text())
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trust, socket_factory=self._sockets.made),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            skip_auto_headers=_NOT_OURS,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            await self._sockets.close()

    async def ask(self, client: web.BaseRequest, body: bytes) -> aiohttp.ClientResponse:
        """The answer to a request, of which the body is still to be read."""
        assert self._session is not None
        return await self._session.request(
            client.method,
            yarl.URL(f"{self._server}{client.raw_path}", encoded=True),
            data=body or None,
            headers=_passed_on(client.headers),
            allow_redirects=False,
        )


async def handed_on(client: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """The server's answer for the client; if one of them ends, so does the other's connection."""
    headers = _passed_on(answer.headers)
    response = web.StreamResponse(status=answer.status, headers=headers)
    try:
        if answer.content_length is not None:
            return web.Response(status=answer.status, headers=headers, body=await answer.read())
        await response.prepare(client)
        async for piece in answer.content.iter_any():
            await response.write(piece)
    except (aiohttp.ClientError, OSError):
        hang_up(client)
    return response


def hang_up(client: web.BaseRequest) -> None:
    """End a client's connection without a word."""
    if client.transport is not None:
        client.transport.abort()


def is_there(client: web.BaseRequest) -> bool:
    """Whether the client still waits, as far as is known."""
    return client.transport is not None and not client.transport.is_closing()


def _passed_on(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, text) for name, text in headers.items() if name.lower() not in _OF_ONE_HOP]
