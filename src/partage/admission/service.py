"""The admission webhooks as a service, from its start to its end.

It has a certificate before it listens, and reads nodes and namespaces beside answering: a pod is
only refused for being too large once all cards are known, and the total of its namespace. Classes
of claims are read once somebody asks about a claim. Every replica answers; none has to lead.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Callable
from typing import NoReturn

import prometheus_client

from partage.admission import (
    claim_reviews,
    guard_state,
    known_cards,
    known_classes,
    reviews,
    serving_certificate,
    settings,
    webhooks,
    wire,
)
from partage.dialects import memory_units, namespaces, nodes
from partage.dialects.claims import objects
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.kube.auth import credentials
from partage.kube.reflection import reflector
from partage.services import lifetime, listener
from partage.services.http import allowances, messages, routes, servers

log = logging.getLogger(__name__)

# An object has 1.5 MiB at most, and a review of an update has two of them.
_LIMITS = allowances.Limits(body_bytes=8 << 20)
_GUARD_S = 60.0  # between two looks at the guard
_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)


async def run(chosen: settings.Settings, *, started: Callable[[str], None]) -> None:
    """Serve until a signal says to stop; ``started`` is called with the address."""
    login = credentials.load(chosen.cluster.kubeconfig or None, chosen.cluster.context or None)
    stop = lifetime.on_signals()
    async with kube.Api(login) as api:
        admission = Admission(chosen, api)
        if not await lifetime.before(stop, admission.certificate.prepare()):
            return
        address = listener.Address(
            chosen.server.address, chosen.server.port, admission.certificate.context
        )
        async with servers.at(address, admission.application(), _LIMITS) as url:
            started(url)
            await lifetime.until(stop, admission.work())


class Admission:
    """The parts, put together."""

    def __init__(self, chosen: settings.Settings, api: kube.Api) -> None:
        self.certificate = _certificate(chosen, api)
        fixed = chosen.pods.memory_unit != "auto"
        cards = known_cards.KnownCards(memory_units.Unit(chosen.dialects, fixed=fixed))
        self._nodes = reflector.Reflector(
            api, "/api/v1/nodes", nodes.Node, cards, key=lambda node: node.metadata.name
        )
        self._namespaces = reflector.Reflector(
            api,
            "/api/v1/namespaces",
            namespaces.Namespace,
            cards.totals,
            key=lambda namespace: namespace.metadata.name,
        )
        classes = known_classes.KnownClasses(self._knows_all_classes)
        self._classes = reflector.Reflector(
            api,
            objects.CLASSES_PATH,
            objects.ElasticGPUClass,
            classes,
            key=lambda gpu_class: gpu_class.metadata.name,
        )
        self._has_claims = asyncio.Event()  # there are none where their definitions are not
        self._reviews = reviews.Reviews(cards, chosen.options)
        self._claim_reviews = claim_reviews.ClaimReviews(
            classes, cards, refuse_never=chosen.options.refuse_never
        )
        self._registry = prometheus_client.CollectorRegistry()
        self._seconds = prometheus_client.Histogram(
            "partage_admission_review_seconds",
            "Time to answer a review.",
            ["review"],
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self._api = api
        self._guard = prometheus_client.Gauge(
            "partage_guard_enforced",
            "Whether pods that break a policy are refused.",
            ["policy"],
            registry=self._registry,
        )
        self._excepted = prometheus_client.Gauge(
            "partage_guard_excepted_namespaces",
            "Namespaces that are excepted from the guard.",
            registry=self._registry,
        )
        self._answers = prometheus_client.Counter(
            "partage_admission_reviews",
            "Reviews that were answered.",
            ["review", "answer"],
            registry=self._registry,
        )

    def application(self) -> routes.Routes:
        """What is served."""
        site = routes.Routes()
        for path, name, review in (
            (webhooks.COMPLETE, "complete", self._reviews.complete),
            (webhooks.JUDGE, "judge", self._reviews.judge),
            (webhooks.ADVISE, "advise", self._reviews.advise),
            (webhooks.SPELL, "spell", self._of_claims(self._claim_reviews.spell)),
            (webhooks.CHECK, "check", self._of_claims(self._claim_reviews.check)),
        ):
            site.post(path, self._handler(name, review))
        site.get("/healthz", lambda _request: _text("ok"))
        site.get("/readyz", lambda _request: _text("ok"))
        site.get("/metrics", self._metrics)
        return site

    async def work(self) -> NoReturn:
        """All that goes on while reviews are answered."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.certificate.keep())
            group.create_task(self._nodes.run())
            group.create_task(self._watch_guard())
            group.create_task(self._namespaces.run())
            group.create_task(self._watch_classes())
        raise AssertionError("tasks that never end have ended")

    def _of_claims(self, review: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        def reviewed(body: bytes) -> bytes:
            self._has_claims.set()
            return review(body)

        return reviewed

    def _knows_all_classes(self) -> bool:
        return self._classes.synced.is_set()

    async def _watch_classes(self) -> NoReturn:
        """Read classes from the first claim on: before, a cluster may not know what they are."""
        await self._has_claims.wait()
        await self._classes.run()

    async def _watch_guard(self) -> NoReturn:
        while True:
            try:
                state = await guard_state.read(self._api)
            except kube_errors.KubeError as error:
                log.warning("the state of the guard is not known: %s", error)
            else:
                for part in state.policies:
                    denied = part.force is guard_state.Force.DENIED
                    self._guard.labels(part.name).set(denied)
                self._excepted.set(len(state.excepted))
            await asyncio.sleep(_GUARD_S)

    def _handler(self, name: str, review: Callable[[bytes], bytes]) -> messages.Handler:
        observe = self._seconds.labels(name).observe

        def handle(request: messages.Request) -> messages.Answer:
            try:
                answer = messages.Answer(review(request.body))
            except wire.Unreadable as error:
                self._answers.labels(name, "unreadable").inc()
                return messages.failed(400, str(error))
            self._answers.labels(name, "answered").inc()
            observe(time.perf_counter() - request.began_s)
            return answer

        return handle

    def _metrics(self, _request: messages.Request) -> messages.Answer:
        page = prometheus_client.generate_latest(self._registry)
        return messages.Answer(page, content_type=prometheus_client.CONTENT_TYPE_LATEST)


def _certificate(
    chosen: settings.Settings, api: kube.Api
) -> serving_certificate.ServingCertificate:
    given = chosen.certificate
    if given.certificate:
        return serving_certificate.GivenCertificate(given.certificate, given.key)
    return serving_certificate.OwnCertificate(
        api,
        namespace=chosen.service.namespace,
        secret=given.secret,
        names=chosen.names,
        now=lambda: dt.datetime.now(dt.UTC),
    )


def _text(text: str) -> messages.Answer:
    return messages.Answer(text.encode(), content_type=messages.TEXT)
