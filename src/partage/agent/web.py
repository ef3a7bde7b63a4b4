"""The agent over HTTP: its report, its metrics, and whether it is well; nothing is changed here.

``/v1/report`` is served wherever ``/metrics`` is: it names the same pods, in a form for ``partage
top`` and ``partage inspect``. Neither has secrets, but both tell whoever can reach the port the
names of all pods on the node. So the default is loopback, and who binds elsewhere, to be scraped,
can put a NetworkPolicy before it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from partage.agent import metrics, reporting
from partage.core import errors

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_JSON = "application/json"


class Parts(msgspec.Struct, frozen=True):
    """Who answers."""

    report: Callable[[], reporting.Report | Awaitable[reporting.Report]]
    ready: Callable[[], str]  # why the agent is not ready; empty if it is
    metrics: metrics.Metrics


def application(parts: Parts) -> web.Application:
    """All routes."""
    app = web.Application(middlewares=[_explained])
    desk = _Desk(parts)
    app.router.add_get(reporting.PATH, desk.report)
    app.router.add_get("/metrics", desk.scrape)
    app.router.add_get("/healthz", _healthy)
    app.router.add_get("/readyz", desk.ready)
    return app


class _Desk:
    """Where requests come in."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def report(self, _request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(await self._report()), content_type=_JSON)

    async def scrape(self, _request: web.Request) -> web.Response:
        page = self._parts.metrics.page(await self._report())
        return web.Response(body=page, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def ready(self, _request: web.Request) -> web.Response:
        why = self._parts.ready()
        return web.Response(text=why or "ok", status=503 if why else 200)

    async def _report(self) -> reporting.Report:
        found = self._parts.report()
        return await found if inspect.isawaitable(found) else found


@web.middleware
async def _explained(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What cannot be read now is said to whoever asked; the others go on."""
    try:
        return await handler(request)
    except errors.PartageError as error:
        return web.Response(text=str(error), status=503)


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response(text="ok")
