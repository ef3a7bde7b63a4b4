"""Posts objects to the API server, on a few connections that are kept.

Each pod costs one Binding. aiohttp takes 235 µs of processor time for one over TLS; this takes 100,
half of it the kernel's (docs/decisions/0010-posting.md). It does one thing: send a request that is
known as a whole and read an answer of bounded size. One request is under way on a connection at a
time, and none is ever sent twice.

Whether a request was ``sent`` is known exactly: not before its first byte was handed to a
connection that stood.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import urllib.parse
from collections import deque
from collections.abc import Callable, Mapping
from typing import cast

import httptools
import msgspec

from partage.kube import connection_failures, errors

LARGEST_ANSWER = 64 * 1024 * 1024  # bytes
LARGEST_REFUSAL = 64 * 1024
_CONNECT_S = 10.0
_KEEP_ALIVE_S = 60.0  # the server closes idle connections after 90 s, and must not be first
_CLOSE_S = 1.0
_BUFFER_BYTES = 64 << 10
_PLAIN = re.compile(r"/[!-~]*")  # what can stand in a request as it is
_ONE_LINE = re.compile(r"[\t -~\x80-\xff]*")


class Answer(msgspec.Struct, frozen=True):
    """What the server says."""

    status: int
    body: bytes
    retry_after: str = ""


class Route(msgspec.Struct, frozen=True):
    """How to reach the server; connections made in another way are not used."""

    tls: ssl.SSLContext | None
    server_name: str | None


def plain(path: str) -> bool:
    """Whether a path can be asked for here; others need the quoting of a real client."""
    return _PLAIN.fullmatch(path) is not None and "#" not in path


class Poster:
    """Sends POST requests to one server."""

    def __init__(self, server: str, *, connections: int) -> None:
        self._most = connections
        self._server = server
        parts = urllib.parse.urlsplit(server)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._base = parts.path.rstrip("/")
        self._fixed = (
            f"Host: {parts.netloc.rpartition('@')[2]}\r\nAccept: application/json\r\n"
            "Accept-Encoding: identity\r\nUser-Agent: partage\r\nContent-Type: application/json\r\n"
        )
        self._open: set[_Connection] = set()
        self._idle: list[_Connection] = []  # the latest last
        self._coming = 0  # connections that are being made
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str], route: Route, timeout_s: float
    ) -> Answer:
        """Send and wait for the answer; raises Unreachable and TooLong."""
        request, called = self._request(path, body, headers), f"POST {path}"
        connection = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connection(route)
                return await connection.ask(request)
        except (OSError, httptools.HttpParserError) as error:  # a TimeoutError is an OSError
            raise self._failed(called, error, sent=connection is not None) from error
        except errors.TooLong as error:
            raise errors.TooLong(f"{called}: {error}") from None
        finally:
            self._give_back(connection)

    def _failed(self, called: str, error: Exception, *, sent: bool) -> errors.Unreachable:
        if not sent:
            return connection_failures.not_connected(called, self._server, error)
        if isinstance(error, TimeoutError):
            return connection_failures.not_answered(called, self._server)
        return connection_failures.broken(called, self._server, error)

    async def close(self) -> None:
        """End all connections."""
        for connection in list(self._open):
            connection.abort()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.gather(*(connection.lost.wait() for connection in list(self._open)))

    def _request(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        more = "".join([f"{name}: {_checked(text)}\r\n" for name, text in headers.items()])
        head = f"POST {self._base}{path} HTTP/1.1\r\n{self._fixed}{more}Content-Length: {len(body)}"
        return b"%b\r\n\r\n%b" % (head.encode("latin-1"), body)

    async def _connection(self, route: Route) -> _Connection:
        """An idle connection: one that was kept, a new one, or the next one that becomes free."""
        while True:
            connection = self._kept(route)
            if connection is not None:
                return connection
            if len(self._open) + self._coming < self._most:
                return await self._connected(route)
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next()  # it was our turn already
                raise

    def _kept(self, route: Route) -> _Connection | None:
        now_s = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if (
                connection.usable
                and connection.route == route
                and now_s - connection.since_s < _KEEP_ALIVE_S
            ):
                return connection
            connection.abort()
        return None

    async def _connected(self, route: Route) -> _Connection:
        made: list[_Connection] = []  # there may be one although the time is over

        def connection() -> _Connection:
            made.append(_Connection(route, self._lost))
            return made[-1]

        self._coming += 1
        try:
            await self._connect(connection, route)
        except BaseException:
            for unused in made:
                unused.abort()
            self._next()
            raise
        finally:
            self._coming -= 1
        self._open.add(made[-1])
        return made[-1]

    async def _connect(self, connection: Callable[[], _Connection], route: Route) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_S):
            await loop.create_connection(
                connection,
                self._host,
                self._port,
                ssl=route.tls,
                server_hostname=(route.server_name or self._host) if route.tls else None,
                happy_eyeballs_delay=0.25,
            )

    def _give_back(self, connection: _Connection | None) -> None:
        if connection is None:
            return
        if connection.usable:
            connection.since_s = asyncio.get_running_loop().time()
            self._idle.append(connection)
            self._next()
        else:
            connection.abort()

    def _lost(self, connection: _Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._next()

    def _next(self) -> None:
        """Let the next request try that waits for a connection."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class _Connection(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self, route: Route, lost: Callable[[_Connection], None]) -> None:
        self.route = route
        self.since_s = 0.0  # unused since then
        self.lost = asyncio.Event()
        self._on_lost = lost
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Answer] | None = None
        self._kept = True
        self._begin()

    @property
    def usable(self) -> bool:
        """Whether another request can be sent on it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        return self._kept and self._waiter is None

    async def ask(self, request: bytes) -> Answer:
        """Send a request and wait for its answer."""
        assert self._transport is not None, "a connection is used once it is made"
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiter

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is made."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        """It is gone."""
        self._fail(error or ConnectionResetError("the server closed it"))
        self.lost.set()
        self._on_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put what comes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So much has come."""
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except httptools.HttpParserUpgrade:
            self._fail(ConnectionResetError("the server asks for another protocol"))
        except httptools.HttpParserError as error:
            self._fail(error)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header of the answer."""
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_body(self, piece: bytes) -> None:
        """A piece of the answer's body; of a refusal the beginning says enough."""
        self._size += len(piece)
        refused = self._parser.get_status_code() >= 300
        if self._size <= (LARGEST_REFUSAL if refused else LARGEST_ANSWER):
            self._parts.append(piece)
        elif not refused:
            self._fail(errors.TooLong(f"the answer has more than {LARGEST_ANSWER} bytes"))

    def on_message_complete(self) -> None:
        """The answer is complete, unless it was an interim one (status 1xx)."""
        status = self._parser.get_status_code()
        answer = Answer(status, b"".join(self._parts), self._retry_after)
        self._begin()
        if status < 200:
            return
        self._kept = self._kept and self._parser.should_keep_alive() and self._waiter is not None
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)

    def _begin(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._retry_after = ""

    def _fail(self, error: Exception) -> None:
        self._kept = False
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)


def _checked(text: str) -> str:
    """A header's text; a line end in a token must not begin another header."""
    if _ONE_LINE.fullmatch(text) is None:
        raise errors.CredentialsError(
            "a credential contains characters that cannot be sent", instead="write it in one line"
        )
    return text
