"""The agent over HTTP: its report, its metrics, and whether it is healthy; nothing is changed here.

``/v1/report`` is served wherever ``/metrics`` is: it names the same pods, in a form for ``partage
top`` and ``partage inspect``. Neither has secrets, but both tell everybody who can reach the port
the names of all pods on the node. So the default is loopback, and an administrator who binds
elsewhere, to be scraped, can put a NetworkPolicy before it.

A report reads the files of all tenants. One report is made at a time, and serves all requests of a
moment: clients must not be able to keep the program busy that starts containers.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec
from aiohttp import web

from partage.agent import reports
from partage.agent.metrics import current_names
from partage.core import errors

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_JSON = "application/json"
_FRESH_S = 0.5

T = TypeVar("T")


class Parts(msgspec.Struct, frozen=True):
    """The functions that give the answers."""

    report: Callable[[], reports.Report | Awaitable[reports.Report]]
    ready: Callable[[], str]  # why the agent is not ready; empty if it is
    metrics: current_names.Metrics


def application(parts: Parts) -> web.Application:
    """All routes."""
    app = web.Application(middlewares=[_explained])
    desk = _Desk(parts)
    app.router.add_get(reports.PATH, desk.report)
    app.router.add_get("/metrics", desk.scrape)
    app.router.add_get("/healthz", _healthy)
    app.router.add_get("/readyz", desk.ready)
    return app


class _Desk:
    """Where requests come in."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._recent = _Recent(self._report)
        self._pages = _Recent(self._page)

    async def report(self, _request: web.Request) -> web.Response:
        body = msgspec.json.encode(await self._recent.now())
        return web.Response(body=body, content_type=_JSON)

    async def scrape(self, _request: web.Request) -> web.Response:
        headers = {"Content-Type": current_names.CONTENT_TYPE}
        return web.Response(body=await self._pages.now(), headers=headers)

    async def ready(self, _request: web.Request) -> web.Response:
        why = self._parts.ready()
        return web.Response(text=why or "ok", status=503 if why else 200)

    async def _report(self) -> reports.Report:
        report = self._parts.report()
        return await report if inspect.isawaitable(report) else report

    async def _page(self) -> bytes:
        return self._parts.metrics.page(await self._recent.now())


class _Recent(Generic[T]):
    """What many share who ask at about the same time."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._turn = asyncio.Lock()
        self._answers: list[T] = []  # the last one
        self._until_s = 0.0

    async def now(self) -> T:
        async with self._turn:
            if not self._answers or time.monotonic() >= self._until_s:
                self._answers = [await self._ask()]
                self._until_s = time.monotonic() + _FRESH_S
            return self._answers[0]


@web.middleware
async def _explained(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A client is told what cannot be read now; other requests go on."""
    try:
        return await handler(request)
    except errors.PartageError as error:
        return web.Response(text=str(error), status=503)


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response(text="ok")
