"""The verbs over HTTP; nothing is decided here.

kube-scheduler discards the body of an answer that is not 200, so a verb that fails says so inside
its answer, whatever went wrong. Bodies are bounded. While the cluster is not read yet, or another
replica leads, the verbs say that, and ``/readyz`` keeps the Service from asking here.

Where clients have to show a certificate, the probes and the metrics are still open to all: a
kubelet has none, and sums show nothing of a single pod.
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
from partage.scheduler import decisions, kubernetes_names, metrics, settings, wire
from partage.scheduler.binds import bind_states, scheduler_timeout
from partage.scheduler.claims import claim_grants
from partage.scheduler.mirror import mirror as mirrors
from partage.scheduler.verbs import (
    binding,
    explanations,
    filter_history,
    filter_verb,
    gpushare_answers,
    gpushare_inspect,
    node_scores,
    preemptions,
)
from partage.services import settings_file
from partage.services.http import allowances, messages, routes

log = logging.getLogger(__name__)

MOST_BYTES = 32 << 20  # of a body: 5,000 whole nodes fit
# Each bind that waits for its turn has a connection of its own, and a burst has many.
LIMITS = allowances.Limits(body_bytes=MOST_BYTES, connections=2048)

Verb = Callable[[bytes], bytes | Awaitable[bytes]]


_BIND = "/scheduler/bind"


class Parts(msgspec.Struct, frozen=True):
    """What answers, and what says whether it may."""

    mirror: mirrors.Mirror
    binds: bind_states.Binds
    decider: decisions.Decider
    filter: filter_verb.Filter
    filter_history: filter_history.FilterHistory
    scheduler_timeout: scheduler_timeout.SchedulerTimeout
    binder: binding.Binder
    metrics: metrics.Metrics
    api: kube.Api
    stopped: Callable[[], str]  # why verbs are not answered just now; empty if they are
    certified: bool = False  # whether clients have to show a certificate
    claims: claim_grants.ClaimGrants | None = None


def application(parts: Parts) -> routes.Routes:
    """All routes."""
    gpushare_filter = filter_verb.Filter(
        parts.mirror,
        parts.decider,
        parts.filter_history,
        gpushare_answers.GpushareAnswers(parts.mirror.fleet),
    )
    scores = node_scores.NodeScores(parts.decider)
    preemption = preemptions.Preemption(parts.mirror)
    inspect = gpushare_inspect.GpushareInspect(parts.mirror)
    binder = parts.binder
    handlers = _Handlers(parts)
    site = routes.Routes(certified=parts.certified, gone=handlers.gone)
    for path, name, verb, failed in (
        ("/gpushare-scheduler/filter", "gpushare-filter", gpushare_filter.filter, _no_nodes),
        ("/gpushare-scheduler/bind", "gpushare-bind", _gpushare_bind(binder), _not_bound),
        ("/scheduler/filter", "filter", parts.filter.filter, _no_nodes),
        ("/scheduler/prioritize", "prioritize", scores.prioritize, _no_scores),
        ("/scheduler/priorities", "prioritize", scores.prioritize, _no_scores),  # qGPU, Elastic GPU
        ("/scheduler/preempt", "preempt", preemption.preempt, _no_victims),
        (_BIND, "bind", binder.bind, _not_bound),
    ):
        site.post(path, handlers.verb(name, verb, failed), _always_200(failed))
    site.get("/gpushare-scheduler/inspect", _inspect(inspect))
    site.get("/gpushare-scheduler/inspect/{node}", _inspect(inspect))
    site.get("/version", _plain(gpushare_answers.VERSION))
    site.get("/healthz", _plain("ok"), open_to_all=True)
    site.get("/readyz", handlers.ready, open_to_all=True)
    site.get("/metrics", handlers.scrape, open_to_all=True)
    site.get("/explain/{namespace}/{pod}", handlers.explain)
    site.post("/fit", handlers.fit)
    return site


def tls(server: settings.Server) -> ssl.SSLContext | None:
    """The TLS context to serve with; None: plain HTTP."""
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
        raise settings_file.SettingsError(
            f"[server]: certificate, key and client_ca cannot be used together: {_ssl(error)}",
            instead="give PEM files: a certificate, its own key, and a CA",
        ) from error
    return context


def _ssl(error: ssl.SSLError) -> str:
    return (error.reason or "they cannot be read").replace("_", " ").lower()


def _check_readable(field: str, path: str) -> None:
    try:
        if path:
            pathlib.Path(path).read_bytes()
    except OSError as error:
        raise settings_file.SettingsError(
            f"[server] {field}: {path}: {error.strerror or error}", instead="name a readable file"
        ) from error


def exposure(server: settings.Server) -> str:
    """What it means to listen there, if it means something."""
    if server.address in ("127.0.0.1", "::1", "localhost"):
        return ""
    if server.client_ca:
        return ""
    how = "without client certificates" if server.certificate else "without TLS"
    return f"listening on {server.address} {how}: everybody who can reach it can bind pods"


class _Handlers:
    """What answers each request."""

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
        """A client closed the connection before its answer: usually kube-scheduler gave up."""
        self._parts.metrics.gone.labels(gone.path).inc()
        if gone.path == _BIND:
            self._parts.scheduler_timeout.gave_up(gone.waited_s)
        log.warning(
            "%s: the client closed the connection after %.1f s, before its answer",
            *(gone.path, gone.waited_s),
        )

    def ready(self, _request: messages.Request) -> messages.Answer:
        stopped = self._parts.stopped()
        return _text(stopped or "ok", 503 if stopped else 200)

    async def scrape(self, _request: messages.Request) -> messages.Answer:
        page = await self._parts.metrics.page()
        return messages.Answer(page, content_type=metrics.CONTENT_TYPE)

    async def explain(self, request: messages.Request) -> messages.Answer:
        namespace, name = request.arguments
        if not (kubernetes_names.named(namespace) and kubernetes_names.named(name)):
            return messages.failed(400, f"{namespace}/{name} is not a valid name of a pod")
        try:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            pod = await self._parts.api.get(path, explanations.Pod)
        except kube_errors.NotFound:
            return messages.failed(404, f"there is no pod {namespace}/{name}")
        except errors.PartageError as error:
            return messages.failed(502, str(error))
        return await self._explained(pod)

    async def fit(self, request: messages.Request) -> messages.Answer:
        try:
            kind, pod = _KIND.decode(request.body).kind, _POD.decode(request.body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            hint = "'kubectl create --dry-run=client -o json -f FILE' converts a manifest to JSON"
            text = f"the body is not a Pod in JSON: {str(error)[:200]}; {hint}"
            return messages.failed(400, text)
        if kind not in ("", "Pod") or not pod.spec.containers:
            text = f"{kind or 'this'} is not a Pod with containers; send its template"
            return messages.failed(400, text)
        return await self._explained(pod)

    async def _explained(self, pod: explanations.Pod) -> messages.Answer:
        stopped = self._parts.stopped()
        if stopped:
            return messages.failed(503, stopped)  # what is not read yet, or not ours to say
        parts = self._parts
        explanation = await explanations.explain(
            parts.mirror,
            pod,
            binds=parts.binds,
            history=parts.filter_history,
            claims=parts.claims,
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
_POD = msgspec.json.Decoder(explanations.Pod)


def _gpushare_bind(binder: binding.Binder) -> Verb:
    return lambda body: binder.bind(
        body, cards_by=gpushare_answers.CARDS_BY, timeout_s=gpushare_answers.TIMEOUT_S
    )


def _inspect(inspect: gpushare_inspect.GpushareInspect) -> messages.Handler:
    return lambda request: messages.Answer(inspect.inspect(*request.arguments))


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
