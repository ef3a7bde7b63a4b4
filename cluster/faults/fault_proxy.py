"""A fault proxy: a proxy between a client and a real API server, with faults that a test chooses.

It runs in a thread of its own and shows the API server's own certificate, so that a kubeconfig for
it differs from the server's in the port alone. Tokens pass through: the client keeps its rights.
Watches are handed on piece by piece.

A server that cannot be reached closes the client's connection without an answer, as a balancer in
front of the server would. A request whose client has gone is forwarded all the same, since in truth
it may be in the server's queue by then. Only the first fault that strikes a request has effect.
"""

from __future__ import annotations

import asyncio
import collections
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import aiohttp
from aiohttp import web

from cluster import child_processes
from cluster.control_plane import access_files
from cluster.control_plane.control_plane import ControlPlane
from cluster.faults import faults, proxy_sides

T = TypeVar("T")

_PATIENCE_S = 30.0


class Outcome(NamedTuple):
    """How a request ended: what the server answered and what the client was told; 0: nothing."""

    verb: str
    resource: str
    server_status: int
    client_status: int


class FaultProxy:
    """The proxy; it is there within a ``with`` block, and ``kubeconfig`` leads to it."""

    def __init__(
        self, plane: ControlPlane, folder: Path, *, user: str = access_files.ADMIN
    ) -> None:
        self.kubeconfig = folder / "fault-proxy.kubeconfig"
        self._plane = plane
        self._user = user
        self._port = child_processes.Port()
        self._faults: list[faults.Fault] = []
        self._outcomes: collections.Counter[Outcome] = collections.Counter()
        self._changing = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        pair = (plane.certificate, plane.certificate_key)
        self._client_side = proxy_sides.ClientSide(self._port.number, self._handle, pair)
        self._server_side = proxy_sides.ServerSide(plane.server, plane.certificate)

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://{child_processes.LOOPBACK}:{self._port.number}"

    def __enter__(self) -> Self:
        self._plane.write_kubeconfig(self.kubeconfig, self._user, server=self.url)
        self._thread.start()
        self._do(self._server_side.open())
        self._do(self._client_side.open())
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._port.release()

    def add(self, fault: faults.Fault) -> faults.Fault:
        """From now on this goes wrong, until the fault ends."""
        with self._changing:
            self._faults = [f for f in self._faults if not f.ended.done()] + [fault]
        return fault

    def end_all(self) -> None:
        """Nothing goes wrong any more; what was held back goes on its way."""
        with self._changing:
            ended, self._faults = self._faults, []
        for fault in ended:
            fault.end()

    def refuse_connections(self) -> None:
        """Cut all connections and refuse new ones; what was already forwarded is still done."""
        self._do(self._client_side.shut())

    def accept_connections(self) -> None:
        """Let clients in again."""
        self._do(self._client_side.open())

    def cut_connections(self) -> None:
        """Cut all connections; clients may come back at once."""
        self._do(self._client_side.cut())

    def outcomes(self) -> collections.Counter[Outcome]:
        """How many requests have ended in which way so far; a watch counts when it begins."""
        with self._changing:
            return self._outcomes.copy()

    def count(
        self,
        requests: faults.Requests,
        *,
        server_status: int | None = None,
        client_status: int | None = None,
    ) -> int:
        """How many of some requests have ended so; None is any status."""
        return sum(
            number
            for outcome, number in self.outcomes().items()
            if requests.include(faults.Request(outcome.verb, outcome.resource))
            and server_status in (None, outcome.server_status)
            and client_status in (None, outcome.client_status)
        )

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    async def _close(self) -> None:
        await self._client_side.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._server_side.close()

    async def _handle(self, client: web.BaseRequest) -> web.StreamResponse:
        """One request, from its arrival to its end."""
        request = faults.request_of(client.method, client.path, client.query_string)
        body = await client.read()
        effect = await self._waited(request)
        if not effect.is_forwarded:
            return self._own_answer(client, request, 0, effect)
        try:
            answer = await self._server_side.ask(client, body)
        except (aiohttp.ClientError, OSError):
            return self._own_answer(client, request, 0, faults.Effect(status=faults.SILENCE))
        async with answer:
            if effect.status is not None:
                return self._own_answer(client, request, answer.status, effect)
            self._note(client, request, answer.status, answer.status)
            return await proxy_sides.handed_on(client, answer)

    async def _waited(self, request: faults.Request) -> faults.Effect:
        """What is to become of a request, after the time for which it has to wait."""
        with self._changing:
            struck = next((fault for fault in self._faults if fault.strikes(request)), None)
        if struck is None:
            return faults.Effect()
        await asyncio.sleep(struck.effect.delay_s)
        if struck.effect.is_held:
            await asyncio.shield(asyncio.wrap_future(struck.ended))
        return struck.effect

    def _own_answer(
        self,
        client: web.BaseRequest,
        request: faults.Request,
        server_status: int,
        effect: faults.Effect,
    ) -> web.Response:
        """An answer of our own, or none."""
        status = effect.status or faults.SILENCE
        self._note(client, request, server_status, status)
        if not status:
            proxy_sides.hang_up(client)
            return web.Response()
        headers = {"Content-Type": "application/json"}
        if effect.retry_after_s:
            headers["Retry-After"] = str(effect.retry_after_s)
        return web.Response(status=status, body=faults.status_body(status), headers=headers)

    def _note(
        self, client: web.BaseRequest, request: faults.Request, server_status: int, sent: int
    ) -> None:
        client_status = sent if proxy_sides.is_there(client) else faults.SILENCE
        outcome = Outcome(request.verb, request.resource, server_status, client_status)
        with self._changing:
            self._outcomes[outcome] += 1
