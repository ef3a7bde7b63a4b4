"""The extender as a service, from its start to its end.

It listens at once, so that probes get an answer, and is ready when the cluster has been read: nodes
before pods, because a record on a pod is read against the cards of its node. With several replicas
each of them reads; the one with the lease decides, after reading everything once more, since its
predecessor may have bound pods until the last moment.

Garbage collection is what would stop a process of this size. What was read at the start stays, so
it is put where the collector does not look.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import logging
import os
import secrets
import socket
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import partage
from partage.core import errors, fleet
from partage.dialects import memory_units, namespaces, nodes, pods
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.kube import lease
from partage.kube.auth import credentials
from partage.kube.reflection import reflector
from partage.scheduler import (
    decisions,
    http_server,
    metrics,
    node_taints,
    nominations,
    price_learning,
    requeue,
    settings,
)
from partage.scheduler.binds import (
    bind_states,
    doubts,
    pod_lookup,
    pod_patches,
    scheduler_timeout,
    send_window,
    takeover,
)
from partage.scheduler.claims import claims_service
from partage.scheduler.gpu_objects import keeper
from partage.scheduler.mirror import health_sink, mirror
from partage.scheduler.verbs import binding, filter_history, filter_texts, filter_verb, own_answers
from partage.services import lifetime, listener
from partage.services.http import routes, servers

if TYPE_CHECKING:
    from partage.scheduler import own_certificates

log = logging.getLogger(__name__)

_UNHEALTHY_LISTS = "configmaps"
_CONFIGMAPS = "/api/v1/namespaces/kube-system/configmaps"
_TOTALS = "namespaces"
_NAMESPACES = "/api/v1/namespaces"

_ALLOW = "allow list and watch, as deploy/extender.yaml does, and restart the extender"

_MARGIN_S = 1.0  # of the lease, beyond the longest bind
_TICK_S = 0.25
_LAG_S = 5.0  # of the watch of pods, from which on it is reported
_SPARE_CONNECTIONS = 16  # beside those for Bindings: watches, lease, pod_lookup, patches
_YOUNG = 20_000  # objects that are made before the youngest are looked through


async def run(chosen: settings.Settings, *, started: Callable[[str], None]) -> None:
    """Serve until a signal says to stop; ``started`` is called with the address."""
    login = credentials.load(chosen.cluster.kubeconfig or None, chosen.cluster.context or None)
    stop = lifetime.on_signals()
    server = chosen.server
    given = http_server.tls(server)
    connections = chosen.binds.most_in_flight + _SPARE_CONNECTIONS
    async with kube.Api(login, connections=connections) as api:
        extender = Extender(chosen, api)
        if not await lifetime.before(stop, extender.prepare()):
            return
        address = listener.Address(server.address, server.port, extender.tls or given)
        async with servers.at(address, extender.application(), http_server.LIMITS) as url:
            started(url)
            if not chosen.certified and (warning := http_server.exposure(server)):
                log.warning("%s", warning)
            await lifetime.until(stop, extender.work(), ending=extender.refuse)
        # Only now: a bind that was under way has ended, and another replica may begin.
        await extender.leave()


class Extender:
    """The parts, put together."""

    def __init__(self, chosen: settings.Settings, api: kube.Api) -> None:
        rules, clock = chosen.decisions, time.monotonic
        fixed = rules.memory_unit != "auto"
        self._api = api
        self._certified = chosen.certified
        self._bind_timeout_s = chosen.bind_timeout_s
        self._lease = _lease(chosen.leader, api)
        self._leaving = False
        self._term = 0  # of the lease, for which everything was read
        self._settled_term = -1  # for which nothing of a predecessor can happen any more
        self._settling_term = -1
        self._settling: asyncio.Future[None] | None = None
        self._tasks = asyncio.TaskGroup()  # all that goes on
        self._requeue = requeue.Requeue(api, leading=self._leads)
        self._taints = node_taints.NodeTaints(api, leading=self._leads, put=chosen.nodes.taints)
        self.mirror = mirror.Mirror(
            fleet.standard(rules.policy),
            memory_units.Unit(rules.dialects, fixed=fixed),
            freed=self._room_appeared,
            seen=self._taints.look,
            removed=self._node_removed,
        )
        self._claims = claims_service.Claims(
            api,
            self.mirror,
            may_write=lambda: not self._may_bind(),
            wake_all=self._requeue.wake_all,
        )
        self._filter_history = filter_history.FilterHistory(clock=clock)
        self._binds = bind_states.Binds(self.mirror, clock=clock, hold_s=chosen.hold_s)
        self._decider = decisions.Decider(
            self.mirror,
            self._binds,
            claims=self._claims.grants,
            refused=self._requeue.note_refused,
        )
        lookup = pod_lookup.PodLookup(self.mirror, self._binds, api, clock=clock)
        patches = pod_patches.PodPatches(api, now=_utc_now)
        self._doubts = doubts.Doubts(self._binds, lookup, patches, clock=clock)
        self._takeover = takeover.Takeover(self.mirror, lookup, patches, clock=clock)
        self._nominations = nominations.Nominations(self.mirror, patches, clock=clock)
        answers = own_answers.OwnAnswers(
            self.mirror.fleet,
            self._decider,
            limit=rules.limit,
            limit_without_preference=rules.limit_without_preference,
        )
        self._filter = filter_verb.Filter(
            self.mirror,
            self._decider,
            self._filter_history,
            answers,
            nominations=self._nominations,
        )
        self._scheduler_timeout = scheduler_timeout.SchedulerTimeout(
            chosen.scheduler.http_timeout_s, on_the_way_s=settings.ON_THE_WAY_S, clock=clock
        )
        self._window = send_window.Window(most=chosen.binds.most_in_flight, clock=clock)
        self._binder = binding.Binder(
            self.mirror,
            self._binds,
            api,
            lookup,
            self._window,
            clock=clock,
            now_ns=time.time_ns,
            allowed=self._may_bind,
            scheduler_timeout=self._scheduler_timeout,
            timeout_s=chosen.bind_timeout_s,
            claimed=self._decider.claimed,
        )
        self._gpu_objects = keeper.Keeper(
            api, self.mirror, ready=lambda: not self.stopped(), binds=lambda: self._binder.sent
        )
        self._certificates = self._own_certificates(chosen.certificates)
        self.reflectors = _reflectors(api, self.mirror)
        self._metrics = metrics.Metrics(
            metrics.Parts(
                self.mirror,
                self._binds,
                self._binder,
                self._window,
                self._requeue,
                self._nominations,
                self._gpu_objects,
            ),
            self.reflectors,
            self.stopped,
        )

    async def prepare(self) -> None:
        """Have what is needed before anybody can ask."""
        if self._certificates is not None:
            await self._certificates.prepare()

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What to serve with, by certificates of our own; None: there are none."""
        return None if self._certificates is None else self._certificates.context

    def application(self) -> routes.Routes:
        """What is served."""
        return http_server.application(
            http_server.Parts(
                self.mirror,
                self._binds,
                self._decider,
                self._filter,
                self._filter_history,
                self._scheduler_timeout,
                self._binder,
                self._metrics,
                self._api,
                self.stopped,
                self._certified,
                self._claims.grants,
            )
        )

    def stopped(self) -> str:
        """Why it does not answer just now; empty if it does."""
        if self._leaving or not self._leads():
            return filter_texts.NOT_LEADING
        unread = self._unread()
        if not unread and self._settled_term != self._term:
            unread = ["what became of pods that wait"]
        return filter_texts.NOT_READY.format(kinds=", ".join(unread)) if unread else ""

    async def work(self) -> NoReturn:
        """All that goes on while requests are answered."""
        async with self._tasks as group:
            if self._lease is not None:
                group.create_task(self._lease.run())
            group.create_task(self._read(group))
            group.create_task(self._tick())
            group.create_task(self._requeue.run(self.mirror))
            group.create_task(self._doubts.run())
            group.create_task(self._nominations.run())
            group.create_task(self._taints.run())
            group.create_task(self._gpu_objects.run())
            group.create_task(price_learning.run(self.mirror))
            if self._certificates is not None:
                group.create_task(self._certificates.keep())
        raise AssertionError("tasks that never end have ended")

    def refuse(self) -> None:
        """Answer nothing any more; what is under way goes on."""
        self._leaving = True

    async def leave(self) -> None:
        """Give the lease back, so that another replica need not wait for its end.

        A replica that takes it does not look for writes under way, so there may be none.
        """
        if self._lease is not None and not self._binder.busy and await self._claims.finish():
            await self._lease.release()

    def _own_certificates(
        self, chosen: settings.Certificates
    ) -> own_certificates.OwnCertificates | None:
        """They are loaded only where they are wanted: they need a library of their own."""
        if not chosen.own:
            return None
        try:
            from partage.scheduler import own_certificates
        except ModuleNotFoundError as error:
            raise errors.InputError(
                f"certificates of its own need {error.name}, which is not installed",
                instead="install partage[admission], or give certificates in files",
            ) from error
        return own_certificates.OwnCertificates(
            self._api,
            chosen,
            now=_utc_now,
            report=lambda text: self.mirror.problems.set("certificates", text),
        )

    async def _read(self, group: asyncio.TaskGroup) -> None:
        start = time.monotonic()
        gc.disable()  # what is read stays, and looking for garbage in it stops everything
        group.create_task(self.reflectors["nodes"].run())
        await self.reflectors["nodes"].synced.wait()
        await self._check_rights()
        if await self._claims.are_served():
            self.reflectors |= self._claims.reflectors()
        for kind in self.reflectors.keys() - {"nodes"}:
            group.create_task(self.reflectors[kind].run())
        group.create_task(self._claims.run(lambda: self._watch_claims(group)))
        for objects in self.reflectors.values():
            await objects.synced.wait()
        self.mirror.pods.is_only_extender = self._lease is None
        _settle_down()
        count, granted = len(self.mirror.nodes.keys()), len(self.mirror.fleet.uids())
        took_s = time.monotonic() - start
        log.info("read %d nodes and %d grants in %.2f s", count, granted, took_s)

    def _watch_claims(self, group: asyncio.TaskGroup) -> None:
        """Definitions that were installed since the start; they are read before all else."""
        if "elasticgpus" not in self.reflectors:
            added = self._claims.reflectors()
            self.reflectors |= added
            for objects in added.values():
                group.create_task(objects.run())

    def _room_appeared(self, node: str) -> None:
        self._requeue.note_freed(node)
        self._claims.room_changed(node)

    def _node_removed(self, node: str) -> None:
        self._claims.room_changed(node)

    async def _check_rights(self) -> None:
        """gpushare's own role may read neither ConfigMaps nor namespaces; all else works without.

        What does not work then is said aloud, because nobody would notice: cards and totals that
        somebody wrote down are not respected.
        """
        if error := await self._forbidden(_CONFIGMAPS, health_sink.UnhealthyList):
            del self.reflectors[_UNHEALTHY_LISTS]
            self.mirror.problems.set(
                "configmaps of kube-system",
                f"{error}; Partage grants also cards that are listed as unhealthy there: {_ALLOW}",
            )
        if error := await self._forbidden(_NAMESPACES, namespaces.Namespace):
            del self.reflectors[_TOTALS]
            self.mirror.namespaces.read = False
            text = f"{error}; the totals of namespaces do not hold, and nobody is limited: {_ALLOW}"
            self.mirror.problems.set("namespaces", text)
            log.error("namespaces: %s", text)

    async def _forbidden(self, path: str, form: type[Any]) -> kube_errors.Forbidden | None:
        try:
            await self._api.get(path, form, {"limit": "1"})
        except kube_errors.Forbidden as error:
            return error
        except kube_errors.KubeError as error:
            log.warning("%s", error)  # the reflector tries again
        return None

    async def _tick(self) -> NoReturn:
        answered = False
        while True:
            self._take_over()
            self._settle_predecessor()
            self._binds.expire()
            if not self.stopped() and not answered and self.mirror.waiting:
                self._requeue.wake_all()  # our predecessor may have refused them, on a past state
            answered = not self.stopped()
            self._report()
            await asyncio.sleep(_TICK_S)

    def _settle_predecessor(self) -> None:
        """Before the first decision of a term: nothing that was sent before may yet happen."""
        if self._settling is not None and (self._settling.done() or not self._leads()):
            self._end_settling(self._settling)
        if self._settling is None and self._settled_term != self._term and self._may_settle():
            self._settling_term = self._term
            given = self._lease is not None and self._lease.given
            self._settling = asyncio.ensure_future(self._settle(given=given))

    async def _settle(self, *, given: bool) -> None:
        await self._read_claims()
        if not given:
            await self._takeover.run()
            await self._claims.settle()

    async def _read_claims(self) -> None:
        """What ElasticGPUs hold, if their definitions came since this replica looked for them."""
        if await self._claims.are_served():
            self._watch_claims(self._tasks)
        while self._unread():  # noqa: ASYNC110 (what is removed meanwhile is waited for no more)
            await asyncio.sleep(_TICK_S)

    def settled(self, term: int = 0) -> None:
        """Nothing that a predecessor sent can happen any more, in this term."""
        self._settled_term = term

    def _may_settle(self) -> bool:
        return self._leads() and not self._unread()

    def _end_settling(self, settling: asyncio.Future[None]) -> None:
        self._settling = None
        if not settling.done():
            settling.cancel()  # another replica leads by now
            return
        settling.result()  # a mistake of ours ends the process, as anywhere
        self.settled(self._settling_term)

    def _report(self) -> None:
        """Report what is wrong with kube-scheduler and with the watch."""
        problems = self.mirror.problems
        problems.set("kube-scheduler", self._filter_history.problem)
        problems.set("kube-scheduler's httpTimeout", self._scheduler_timeout.problem)
        lag_s = self._binds.echo_lag_s
        late = f"it is {lag_s:.0f} s behind, so Partage learns late what was freed"
        text = late if lag_s > _LAG_S else ""
        problems.set("the watch of pods", text)

    def _unread(self) -> list[str]:
        return [
            kind
            for kind, objects in self.reflectors.items()
            if not objects.synced.is_set() and self._claims.waits_for(kind)
        ]

    def _take_over(self) -> None:
        """A replica that begins to lead reads everything once more, before it decides anything."""
        if self._lease is None or not self._lease.leading or self._term == self._lease.term:
            return
        for objects in self.reflectors.values():
            objects.relist()
        self._claims.begin_term()
        self._term = self._lease.term

    def _leads(self) -> bool:
        return self._lease is None or (self._lease.leading and self._term == self._lease.term)

    def _may_bind(self) -> str:
        """A bind must have ended before another replica can lead."""
        if self._lease is not None and self._lease.left_s() < self._bind_timeout_s + _MARGIN_S:
            return filter_texts.NOT_LEADING
        return self.stopped()


def _reflectors(api: kube.Api, mirror: mirror.Mirror) -> dict[str, reflector.Reflector[Any]]:
    """What keeps the mirror equal to the cluster, by kind of object."""
    return {
        "nodes": reflector.Reflector(api, "/api/v1/nodes", nodes.Node, mirror.nodes, key=_name),
        "pods": reflector.Reflector(api, "/api/v1/pods", pods.Pod, mirror.pods, key=_uid),
        _UNHEALTHY_LISTS: reflector.Reflector(
            api, _CONFIGMAPS, health_sink.UnhealthyList, mirror.unhealthy, key=_name
        ),
        _TOTALS: reflector.Reflector(
            api, _NAMESPACES, namespaces.Namespace, mirror.namespaces, key=_name
        ),
    }


def _lease(leader: settings.Leader, api: kube.Api) -> lease.Lease | None:
    if not leader.elect:
        return None
    return lease.Lease(
        api,
        namespace=leader.namespace,
        name=leader.name,
        identity=f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}",
        annotations={settings.VERSION_ANNOTATION: partage.__version__},
        duration_s=leader.lease_s,
        renew_s=leader.renew_s,
    )


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _settle_down() -> None:
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)
    gc.enable()


def _name(item: nodes.Node | health_sink.UnhealthyList | namespaces.Namespace) -> str:
    return item.metadata.name


def _uid(pod: pods.Pod) -> str:
    return pod.metadata.uid
