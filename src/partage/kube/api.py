"""The verbs of the Kubernetes API: bytes out, structs in.

One session of aiohttp with connections kept alive. There is no rate limit on our side: the server's
priority and fairness knows better which requests have to wait, and says so with 429. Answers are
asked for uncompressed, since within a cluster CPU is dearer than bandwidth, and their size is
bounded. Redirects are not followed, for a token must not travel to another host.

A request is tried once, but for two cases. After a 401 the login is read anew and the request sent
again; a request that was not let in has done nothing. And aiohttp itself sends GET, PUT and DELETE
a second time when the connection breaks before the answer: a PUT with a `resourceVersion` then ends
in a conflict at worst, a DELETE in "not found". The caller decides about all else, and can see
from `errors.Unreachable.sent` and `errors.ServerError` that an outcome is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import Generic, Self, TypeVar

import aiohttp
import msgspec

from partage.kube import connection_failures, errors, open_sockets, poster, stream_lines, wire
from partage.kube.auth import credentials

T = TypeVar("T")

IDLE_S = 90.0  # of a stream; bookmarks come once a minute
LARGEST_ANSWER = 64 * 1024 * 1024  # bytes; a page of 500 large pods has about 10 MiB
_LARGEST_REFUSAL = 64 * 1024
_CONNECT_S = 10.0
CONNECTIONS = 16  # more only make the server shake more hands
_KEEP_ALIVE_S = 60.0  # the server closes idle connections after 90 s, and must not be first
_JSON = "application/json"
_NO_QUERY: Mapping[str, str] = {}


class Patch(enum.Enum):
    """How a patch is to be understood: its content type."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list; all pages of a list are of one version."""

    items: list[T]
    resource_version: str


class ServerTime(msgspec.Struct, frozen=True):
    """What the server's clock said, and what ours said before and after."""

    date: str  # as in the header: whole seconds
    asked_s: float
    answered_s: float


class Api:
    """A connection to one API server; use it as ``async with Api(credentials) as api``."""

    def __init__(
        self,
        credentials: credentials.Credentials,
        *,
        timeout_s: float = 30.0,
        connections: int = CONNECTIONS,
    ) -> None:
        self._credentials = credentials
        self._connections = connections
        self._timeout_s = timeout_s
        self._open: aiohttp.ClientSession | None = None
        self._sockets = open_sockets.Sockets()
        self._poster: poster.Poster | None = None

    async def __aenter__(self) -> Self:
        """Open the session; connections are made when needed."""
        self._open = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections,
                keepalive_timeout=_KEEP_ALIVE_S,
                socket_factory=self._sockets.made,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": _JSON, "Accept-Encoding": "identity", "User-Agent": "partage"},
        )
        self._poster = poster.Poster(self._credentials.server, connections=self._connections)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self._session.close()
        await self._sockets.close()
        if self._poster is not None:
            await self._poster.close()
        self._open = self._poster = None

    async def get(self, path: str, form: type[T], query: Mapping[str, str] = _NO_QUERY) -> T:
        """One object, or a list as it comes."""
        call = _Call("GET", path, query)
        return _decoded(await self._answer(call), form, call)

    async def server_time(self, clock: Callable[[], float] = time.time) -> ServerTime:
        """The time of the API server; the second answer is quicker, as there is a connection."""
        times = aiohttp.ClientTimeout(total=self._timeout_s)
        asked_s = clock()
        async with self._response(_Call("GET", "/version"), times) as response:
            return ServerTime(response.headers.get("Date", ""), asked_s, clock())

    async def create(self, path: str, body: object, *, timeout_s: float | None = None) -> bytes:
        """Make a new object; the answer is the object as stored."""
        encoded = msgspec.json.encode(body)
        if self._poster is None or not poster.plain(path):
            return await self._answer(_Call("POST", path, body=encoded), timeout_s)
        total_s = self._timeout_s if timeout_s is None else timeout_s
        return await self._posted(path, encoded, total_s)

    async def replace(self, path: str, body: object, form: type[T]) -> T:
        """Put an object in place of what is there, if its ``resourceVersion`` is still that."""
        call = _Call("PUT", path, body=msgspec.json.encode(body))
        return _decoded(await self._answer(call), form, call)

    async def patch(self, path: str, body: object, *, kind: Patch = Patch.MERGE) -> bytes:
        """Change parts of an object; the answer is the object as stored."""
        encoded = msgspec.json.encode(body)
        return await self._answer(_Call("PATCH", path, body=encoded, content=kind.value))

    async def delete(self, path: str, *, uid: str = "", version: str = "") -> None:
        """Ask for an object to be deleted; with a uid or a version, only if it still has that."""
        seen = {"uid": uid, "resourceVersion": version}
        conditions = {name: text for name, text in seen.items() if text}
        body = msgspec.json.encode({"preconditions": conditions}) if conditions else None
        await self._answer(_Call("DELETE", path, body=body))

    async def pages(
        self,
        path: str,
        form: type[T],
        *,
        limit: int = 500,
        query: Mapping[str, str] = _NO_QUERY,
    ) -> AsyncGenerator[Page[T]]:
        """A list, part by part; `errors.Gone` in the middle means to start over."""
        decoder = msgspec.json.Decoder(form)
        token: dict[str, str] = {}  # of the next page
        while True:
            call = _Call("GET", path, {**query, "limit": str(limit), **token})
            try:
                page = _decoded(await self._answer(call), wire.List, call)
            except errors.TooLong:
                if limit == 1:
                    raise
                limit //= 2  # some objects are much larger than others
                continue
            items = [_decoded_by(decoder, item, call) for item in page.items or ()]
            yield Page(items, page.metadata.resource_version)
            if not page.metadata.next:
                return
            token = {"continue": page.metadata.next}
            await asyncio.sleep(0)  # decoding a page takes milliseconds; others are waiting

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str] = _NO_QUERY, *, idle_s: float = IDLE_S
    ) -> AsyncIterator[stream_lines.Lines]:
        """The lines of a watch, until the server ends it; silence for ``idle_s`` is an error."""
        call = _Call("GET", path, query)
        times = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=idle_s)
        async with self._response(call, times) as response:
            yield stream_lines.Lines(_Chunks(response, call))

    async def _posted(self, path: str, body: bytes, timeout_s: float) -> bytes:
        headers = await self._credentials.headers()
        answer = await self._post(path, body, headers, timeout_s)
        if answer.status == 401:
            await self._renew(headers)
            answer = await self._post(path, body, await self._credentials.headers(), timeout_s)
        if answer.status >= 300:
            raise errors.from_answer(
                answer.status,
                answer.body,
                request=f"POST {path}",
                retry_after_s=_seconds(answer.retry_after),
            )
        return answer.body

    async def _post(
        self, path: str, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> poster.Answer:
        login = self._credentials
        if self._poster is None:
            raise RuntimeError("use `async with Api(...) as api`")
        route = poster.Route(login.ssl, login.server_name)
        return await self._poster.post(path, body, headers, route, timeout_s)

    async def _answer(self, call: _Call, timeout_s: float | None = None) -> bytes:
        total_s = self._timeout_s if timeout_s is None else timeout_s
        times = aiohttp.ClientTimeout(total=total_s, sock_connect=min(total_s, _CONNECT_S))
        async with self._response(call, times) as response:
            return await _body(response, call, LARGEST_ANSWER)

    @contextlib.asynccontextmanager
    async def _response(
        self, call: _Call, times: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response that is a success, or the error that it stands for."""
        async with await self._let_in(call, times) as response:
            if response.status >= 300:
                raise await _refused(response, call)
            yield response

    async def _let_in(self, call: _Call, times: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        headers = await self._credentials.headers()
        response = await self._send(call, headers, times)
        if response.status != 401:
            return response
        response.release()
        await self._renew(headers)
        return await self._send(call, await self._credentials.headers(), times)

    async def _renew(self, refused: Mapping[str, str]) -> None:
        """The server does not accept this login any more."""
        if refused == await self._credentials.headers():  # nobody else has renewed it meanwhile
            self._credentials.forget()

    async def _send(
        self, call: _Call, headers: Mapping[str, str], times: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        login = self._credentials
        content = {} if call.body is None else {"Content-Type": call.content}
        with _translated(call, login.server):
            return await self._session.request(
                call.verb,
                login.server + call.path,
                params=call.query,
                data=call.body,
                headers={**headers, **content},
                timeout=times,
                ssl=True if login.ssl is None else login.ssl,
                server_hostname=login.server_name,
                allow_redirects=False,
            )

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._open is None:
            raise RuntimeError("use `async with Api(...) as api`")
        return self._open


class _Call(msgspec.Struct, frozen=True):
    verb: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content: str = _JSON

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


def _decoded(body: bytes, form: type[T], call: _Call) -> T:
    return _decoded_by(msgspec.json.Decoder(form), body, call)


def _decoded_by(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw, call: _Call) -> T:
    try:
        return decoder.decode(body)
    except wire.UNREADABLE as error:
        raise errors.BadAnswer(f"{call}: the answer cannot be read: {error}") from error


class _Chunks:
    """The bytes of a response as they come, and its failures in our words."""

    def __init__(self, response: aiohttp.ClientResponse, call: _Call) -> None:
        self._chunks = response.content.iter_any()
        self._call = call
        self._server = str(response.url.origin())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        with _translated(self._call, self._server):
            return await anext(self._chunks)


async def _body(response: aiohttp.ClientResponse, call: _Call, largest: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in _Chunks(response, call):
        parts.append(chunk)
        size += len(chunk)
        if size > largest:
            raise errors.TooLong(f"{call}: the answer has more than {largest} bytes")
    return b"".join(parts)


async def _refused(response: aiohttp.ClientResponse, call: _Call) -> errors.ApiError:
    try:
        body = await _body(response, call, _LARGEST_REFUSAL)
    except errors.KubeError:
        body = b""  # the code alone says enough
    return errors.from_answer(
        response.status,
        body,
        request=str(call),
        retry_after_s=_seconds(response.headers.get("Retry-After", "")),
    )


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() else 0.0


@contextlib.contextmanager
def _translated(call: _Call, server: str) -> Iterator[None]:
    """aiohttp's errors in our words."""
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise connection_failures.not_connected(str(call), server, error) from error
    except TimeoutError as error:
        raise connection_failures.not_answered(str(call), server) from error
    except (aiohttp.ClientError, OSError) as error:
        raise connection_failures.broken(str(call), server, error) from error
