"""Serving: the verbs over HTTP, and nothing decided.

kube-scheduler discards the body of an answer that is not 200, so a verb that fails says so inside
its answer, whatever went wrong. Bodies are bounded. While the cluster is not read yet, or another
replica leads, the verbs say that, and ``/readyz`` keeps the Service from asking here.

Where clients have to show a certificate, the probes and the metrics are still open to all: a
kubelet has none, and sums name nobody.
"""

from __future__ import annotations

import asyncio
import logging
import pathlib
import ssl
import time
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from partage.core import errors
from partage.dialects import pods
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler import (
    binding,
    deciding,
    explaining,
    filtering,
    gpushare,
    metrics,
    names,
    preempting,
    settings,
    wire,
)

log = logging.getLogger(__name__)

MOST_BYTES = 32 << 20  # of a body: 5,000 whole nodes fit
_BODIES = 8  # that are read at once; kube-scheduler sends one after another, but for binds
_BODY_S = 5.0

Verb = Callable[[bytes], bytes | Awaitable[bytes]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_JSON = "application/json"


class Parts(msgspec.Struct, frozen=True):
    """What answers, and who says whether it may."""

    decider: deciding.Decider
    binder: binding.Binder
    metrics: metrics.Metrics
    api: kube.Api
    stopped: Callable[[], str]  # why verbs are not answered just now; empty if they are
    limit: int
    certified: bool = False  # whether clients have to show a certificate


def application(parts: Parts) -> web.Application:
    """All routes."""
    own = filtering.Filter(parts.decider, limit=parts.limit)
    old = gpushare.Gpushare(parts.decider)
    preemption = preempting.Preemption(parts.decider)
    binder = parts.binder
    guards = [_certified] if parts.certified else []
    app = web.Application(client_max_size=MOST_BYTES, middlewares=guards)
    desk = _Desk(parts)
    for path, name, verb, failed in (
        ("/gpushare-scheduler/filter", "gpushare-filter", old.filter, _no_nodes),
        ("/gpushare-scheduler/bind", "gpushare-bind", _old_bind(binder), _not_bound),
        ("/scheduler/filter", "filter", own.filter, _no_nodes),
        ("/scheduler/prioritize", "prioritize", own.prioritize, _no_scores),
        ("/scheduler/preempt", "preempt", preemption.preempt, _no_victims),
        ("/scheduler/bind", "bind", binder.bind, _not_bound),
    ):
        app.router.add_post(path, desk.verb(name, verb, failed))
    app.router.add_get("/gpushare-scheduler/inspect", desk.inspect(old))
    app.router.add_get("/gpushare-scheduler/inspect/{node}", desk.inspect(old))
    app.router.add_get("/version", _plain(gpushare.VERSION))
    app.router.add_get("/healthz", _plain("ok"))
    app.router.add_get("/readyz", desk.ready)
    app.router.add_get("/metrics", desk.scrape)
    app.router.add_get("/explain/{namespace}/{pod}", desk.explain)
    app.router.add_post("/fit", desk.fit)
    return app


def tls(server: settings.Server) -> ssl.SSLContext | None:
    """How to speak TLS; None: not at all."""
    if not server.certificate:
        return None
    for field in ("certificate", "key", "client_ca"):
        _check_readable(field, getattr(server, field))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(server.certificate, server.key)
        if server.client_ca:
            context.load_verify_locations(server.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL  # for the probes; see _certified
    except ssl.SSLError as error:
        raise settings.SettingsError(
            f"[server]: certificate, key and client_ca do not go together: {error}",
            instead="give PEM files: a certificate, its own key, and a CA",
        ) from error
    return context


def _check_readable(field: str, path: str) -> None:
    try:
        if path:
            pathlib.Path(path).read_bytes()
    except OSError as error:
        raise settings.SettingsError(
            f"[server] {field}: {path}: {error.strerror or error}", instead="name a readable file"
        ) from error


def exposure(server: settings.Server) -> str:
    """What it means to listen there, if it means something."""
    if server.address in ("127.0.0.1", "::1", "localhost"):
        return ""
    if server.client_ca:
        return ""
    how = "without client certificates" if server.certificate else "without TLS"
    return f"listening on {server.address} {how}: whoever can reach it can bind pods"


class _Desk:
    """Where requests come in."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._bodies = asyncio.Semaphore(_BODIES)

    def verb(self, name: str, verb: Verb, failed: Callable[[str], bytes]) -> Handler:
        """A verb as a handler: timed, and with an answer of its own kind to anything."""
        observe = self._parts.metrics.seconds.labels(name).observe

        async def handle(request: web.Request) -> web.Response:
            start = time.perf_counter()
            answer = await self._answer(name, verb, failed, request)
            observe(time.perf_counter() - start)
            return _json(answer)

        return handle

    async def _answer(
        self, name: str, verb: Verb, failed: Callable[[str], bytes], request: web.Request
    ) -> bytes:
        stopped = self._parts.stopped()
        if stopped:
            return failed(stopped)
        try:
            answer = verb(await self._body(request))
            return answer if isinstance(answer, bytes) else await answer
        except TimeoutError:
            return failed(f"the body did not come within {_BODY_S:g} s")
        except web.HTTPRequestEntityTooLarge:
            return failed(f"the body has more than {MOST_BYTES} bytes")
        except Exception:
            # Whatever it is, it is ours; kube-scheduler needs an answer, and nobody a dead process.
            log.exception("%s failed", name)
            return failed("Partage failed inside; its log says how")

    async def _body(self, request: web.Request) -> bytes:
        """The whole body; few are read at once, and none for long, so that memory is bounded."""
        async with self._bodies, asyncio.timeout(_BODY_S):
            return await request.read()

    def inspect(self, old: gpushare.Gpushare) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            return _json(old.inspect(request.match_info.get("node", "")))

        return handle

    async def ready(self, _request: web.Request) -> web.Response:
        stopped = self._parts.stopped()
        return web.Response(text=stopped or "ok", status=503 if stopped else 200)

    async def scrape(self, _request: web.Request) -> web.Response:
        page = await self._parts.metrics.page()
        return web.Response(body=page, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def explain(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        if not (names.named(namespace) and names.named(name)):
            return _error(400, f"{namespace}/{name} cannot be the name of a pod")
        try:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            pod = await self._parts.api.get(path, pods.Pod)
        except kube_errors.NotFound:
            return _error(404, f"there is no pod {namespace}/{name}")
        except errors.PartageError as error:
            return _error(502, str(error))
        return await self._explained(pod)

    async def fit(self, request: web.Request) -> web.Response:
        try:
            body = await self._body(request)
            kind, pod = _KIND.decode(body).kind, _POD.decode(body)
        except web.HTTPRequestEntityTooLarge:
            return _error(413, f"the body has more than {MOST_BYTES} bytes")
        except TimeoutError:
            return _error(408, f"the body did not come within {_BODY_S:g} s")
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            hint = "'kubectl create --dry-run=client -o json -f FILE' makes JSON of a manifest"
            return _error(400, f"the body is not a Pod in JSON: {str(error)[:200]}; {hint}")
        if kind not in ("", "Pod") or not pod.spec.containers:
            return _error(400, f"{kind or 'this'} is not a Pod with containers; send its template")
        return await self._explained(pod)

    async def _explained(self, pod: pods.Pod) -> web.Response:
        explanation = await explaining.explain(self._parts.decider.mirror, pod)
        return _json(msgspec.json.encode(explanation))


@web.middleware
async def _certified(request: web.Request, handler: Handler) -> web.StreamResponse:
    shown = request.transport.get_extra_info("peercert") if request.transport else None
    if shown or request.path in _OPEN:
        return await handler(request)
    return _error(401, "show a certificate of the client CA")


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""


_OPEN = ("/healthz", "/readyz", "/metrics")
_KIND = msgspec.json.Decoder(_Kind)
_POD = msgspec.json.Decoder(pods.Pod)


def _old_bind(binder: binding.Binder) -> Verb:
    return lambda body: binder.bind(body, cards_by=gpushare.CARDS_BY)


def _no_nodes(reason: str) -> bytes:
    return wire.encode(wire.FilterResult(error=reason))


def _not_bound(reason: str) -> bytes:
    return wire.encode(wire.BindingResult(reason))


def _no_scores(_reason: str) -> bytes:
    return b"[]"


def _no_victims(_reason: str) -> bytes:
    return wire.encode(wire.PreemptionResult())


def _plain(text: str) -> Handler:
    async def handle(_request: web.Request) -> web.Response:
        return web.Response(text=text)

    return handle


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type=_JSON)


def _error(status: int, text: str) -> web.Response:
    return web.Response(
        body=msgspec.json.encode({"error": text}), status=status, content_type=_JSON
    )
