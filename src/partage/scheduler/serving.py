"""Serving: the verbs over HTTP, and nothing decided.

kube-scheduler discards the body of an answer that is not 200, so a verb that fails says so inside
its answer, whatever went wrong. Bodies are bounded. While the cluster is not read yet, or another
replica leads, the verbs say that, and ``/readyz`` keeps the Service from asking here.

Where clients have to show a certificate, the probes and the metrics are still open to all: a
kubelet has none, and sums name nobody.
"""

from __future__ import annotations

import logging
import pathlib
import ssl
import time
from collections.abc import Awaitable, Callable

import msgspec

from partage.core import errors
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
    patience,
    preempting,
    questions,
    settings,
    wire,
)
from partage.services.http import allowances, messages, routes

log = logging.getLogger(__name__)

MOST_BYTES = 32 << 20  # of a body: 5,000 whole nodes fit
# Each bind that waits for its turn has a connection of its own, and a burst has many.
LIMITS = allowances.Limits(body_bytes=MOST_BYTES, connections=2048)

Verb = Callable[[bytes], bytes | Awaitable[bytes]]


_BIND = "/scheduler/bind"


class Parts(msgspec.Struct, frozen=True):
    """What answers, and who says whether it may."""

    decider: deciding.Decider
    filter: filtering.Filter
    questions: questions.Questions
    patience: patience.Patience
    binder: binding.Binder
    metrics: metrics.Metrics
    api: kube.Api
    stopped: Callable[[], str]  # why verbs are not answered just now; empty if they are
    certified: bool = False  # whether clients have to show a certificate


def application(parts: Parts) -> routes.Routes:
    """All routes."""
    own = parts.filter
    old = gpushare.Gpushare(parts.decider)
    preemption = preempting.Preemption(parts.decider)
    binder = parts.binder
    desk = _Desk(parts)
    site = routes.Routes(certified=parts.certified, gone=desk.gone)
    for path, name, verb, failed in (
        ("/gpushare-scheduler/filter", "gpushare-filter", old.filter, _no_nodes),
        ("/gpushare-scheduler/bind", "gpushare-bind", _old_bind(binder), _not_bound),
        ("/scheduler/filter", "filter", own.filter, _no_nodes),
        ("/scheduler/prioritize", "prioritize", own.prioritize, _no_scores),
        ("/scheduler/preempt", "preempt", preemption.preempt, _no_victims),
        (_BIND, "bind", binder.bind, _not_bound),
    ):
        site.post(path, desk.verb(name, verb, failed), _always_200(failed))
    site.get("/gpushare-scheduler/inspect", desk.inspect(old))
    site.get("/gpushare-scheduler/inspect/{node}", desk.inspect(old))
    site.get("/version", _plain(gpushare.VERSION))
    site.get("/healthz", _plain("ok"), open_to_all=True)
    site.get("/readyz", desk.ready, open_to_all=True)
    site.get("/metrics", desk.scrape, open_to_all=True)
    site.get("/explain/{namespace}/{pod}", desk.explain)
    site.post("/fit", desk.fit)
    return site


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
            context.verify_mode = ssl.CERT_OPTIONAL  # for the probes, which are open to all
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

    def verb(self, name: str, verb: Verb, failed: Callable[[str], bytes]) -> messages.Handler:
        """A verb as a handler: timed, and answered at once if it can be."""
        observe = self._parts.metrics.seconds.labels(name).observe

        def handle(request: messages.Request) -> messages.Answer | Awaitable[messages.Answer]:
            stopped = self._parts.stopped()
            answer = failed(stopped) if stopped else verb(request.body)
            if not isinstance(answer, bytes):
                return _awaited(answer, request, observe)
            observe(time.perf_counter() - request.began_s)
            return messages.Answer(answer)

        return handle

    def gone(self, gone: routes.Gone) -> None:
        """A client went away before its answer: kube-scheduler gave up, as a rule."""
        self._parts.metrics.gone.labels(gone.path).inc()
        if gone.path == _BIND:
            self._parts.patience.gave_up(gone.waited_s)
        log.warning("%s: the client left after %.1f s, unanswered", gone.path, gone.waited_s)

    def inspect(self, old: gpushare.Gpushare) -> messages.Handler:
        return lambda request: messages.Answer(old.inspect(*request.arguments))

    def ready(self, _request: messages.Request) -> messages.Answer:
        stopped = self._parts.stopped()
        return _text(stopped or "ok", 503 if stopped else 200)

    async def scrape(self, _request: messages.Request) -> messages.Answer:
        page = await self._parts.metrics.page()
        return messages.Answer(page, content_type=metrics.CONTENT_TYPE)

    async def explain(self, request: messages.Request) -> messages.Answer:
        namespace, name = request.arguments
        if not (names.named(namespace) and names.named(name)):
            return messages.failed(400, f"{namespace}/{name} cannot be the name of a pod")
        try:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            pod = await self._parts.api.get(path, explaining.Pod)
        except kube_errors.NotFound:
            return messages.failed(404, f"there is no pod {namespace}/{name}")
        except errors.PartageError as error:
            return messages.failed(502, str(error))
        return await self._explained(pod)

    async def fit(self, request: messages.Request) -> messages.Answer:
        try:
            kind, pod = _KIND.decode(request.body).kind, _POD.decode(request.body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            hint = "'kubectl create --dry-run=client -o json -f FILE' makes JSON of a manifest"
            text = f"the body is not a Pod in JSON: {str(error)[:200]}; {hint}"
            return messages.failed(400, text)
        if kind not in ("", "Pod") or not pod.spec.containers:
            text = f"{kind or 'this'} is not a Pod with containers; send its template"
            return messages.failed(400, text)
        return await self._explained(pod)

    async def _explained(self, pod: explaining.Pod) -> messages.Answer:
        stopped = self._parts.stopped()
        if stopped:
            return messages.failed(503, stopped)  # what is not read yet, or not ours, is not told
        decider = self._parts.decider
        explanation = await explaining.explain(
            decider.mirror, pod, lives=decider.binds, asked=self._parts.questions
        )
        return messages.Answer(msgspec.json.encode(explanation))


async def _awaited(
    answer: Awaitable[bytes], request: messages.Request, observe: Callable[[float], None]
) -> messages.Answer:
    body = await answer
    observe(time.perf_counter() - request.began_s)
    return messages.Answer(body)


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""


_KIND = msgspec.json.Decoder(_Kind)
_POD = msgspec.json.Decoder(explaining.Pod)


def _old_bind(binder: binding.Binder) -> Verb:
    return lambda body: binder.bind(
        body, cards_by=gpushare.CARDS_BY, patience_s=gpushare.PATIENCE_S
    )


def _no_nodes(reason: str) -> bytes:
    return wire.encode(wire.FilterResult(error=reason))


def _not_bound(reason: str) -> bytes:
    return wire.encode(wire.BindingResult(reason))


def _no_scores(_reason: str) -> bytes:
    return b"[]"


def _no_victims(_reason: str) -> bytes:
    return wire.encode(wire.PreemptionResult())


def _always_200(failed: Callable[[str], bytes]) -> messages.Failed:
    return lambda _status, reason: messages.Answer(failed(reason))


def _plain(text: str) -> messages.Handler:
    return lambda _request: _text(text)


def _text(text: str, status: int = 200) -> messages.Answer:
    return messages.Answer(text.encode(), status, messages.TEXT)
