"""Running: the extender from its start to its end.

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
import time
from collections.abc import Callable
from typing import Any, NoReturn

from partage.core import fleet
from partage.dialects import nodes, pods
from partage.kube import api as kube
from partage.kube import credentials, lease, reflector
from partage.kube import errors as kube_errors
from partage.scheduler import (
    binding,
    deciding,
    doubts,
    filtering,
    inquiries,
    kicking,
    learning,
    metrics,
    mirror,
    nominations,
    patience,
    pod_patches,
    questions,
    serving,
    settings,
    sick_sink,
    takeover,
    texts,
    units,
    window,
)
from partage.services import listening, stopping
from partage.services.http import routes, servers

log = logging.getLogger(__name__)

_SICK_LISTS = "configmaps"
_CONFIGMAPS = "/api/v1/namespaces/kube-system/configmaps"

_MARGIN_S = 1.0  # of the lease, beyond the longest bind
_TICK_S = 0.25
_LAG_S = 5.0  # of the watch of pods, from which on it is reported
_SPARE_CONNECTIONS = 16  # beside those for Bindings: watches, lease, inquiries, patches
_YOUNG = 20_000  # objects that are made before the youngest are looked through


async def run(chosen: settings.Settings, *, started: Callable[[str], None]) -> None:
    """Serve until a signal says to stop; ``started`` is told the address."""
    known = credentials.load(chosen.cluster.kubeconfig or None, chosen.cluster.context or None)
    stop = stopping.on_signals()
    server = chosen.server
    address = listening.Address(server.address, server.port, serving.tls(server))
    connections = chosen.binds.most_in_flight + _SPARE_CONNECTIONS
    async with kube.Api(known, connections=connections) as api:
        extender = Extender(chosen, api)
        async with servers.at(address, extender.application(), serving.LIMITS) as url:
            started(url)
            if warning := serving.exposure(server):
                log.warning("%s", warning)
            await stopping.until(stop, extender.work(), ending=extender.refuse)
        # Only now: a bind that was under way has ended, and another replica may begin.
        await extender.leave()


class Extender:
    """The parts, put together."""

    def __init__(self, chosen: settings.Settings, api: kube.Api) -> None:
        decisions, clock = chosen.decisions, time.monotonic
        fixed = decisions.memory_unit != "auto"
        self._api = api
        self._certified = bool(chosen.server.client_ca)
        self._bind_timeout_s = chosen.bind_timeout_s
        self._lease = _lease(chosen.leader, api)
        self._leaving = False
        self._term = 0  # of the lease, for which everything was read
        self._settled_term = -1  # for which nothing of a predecessor can happen any more
        self._settling_term = -1
        self._settling: asyncio.Future[None] | None = None
        self._kicker = kicking.Kicker(api, leading=self._leads)
        self.mirror = mirror.Mirror(
            fleet.standard(decisions.policy),
            units.Unit(decisions.dialects, fixed=fixed),
            freed=self._kicker.freed,
        )
        self._questions = questions.Questions(clock=clock)
        self._decider = deciding.Decider(self.mirror, clock=clock, hold_s=chosen.hold_s)
        asking = inquiries.Inquiries(self.mirror, self._decider.binds, api, clock=clock)
        patches = pod_patches.PodPatches(api, now=_utc_now)
        self._doubts = doubts.Doubts(self._decider.binds, asking, patches, clock=clock)
        self._takeover = takeover.Takeover(self.mirror, asking, patches, clock=clock)
        self._nominations = nominations.Nominations(self.mirror, patches, clock=clock)
        self._filter = filtering.Filter(
            self._decider,
            self._questions,
            limit=decisions.limit,
            limit_without_preference=decisions.limit_without_preference,
            nominated=self._nominations,
        )
        self._patience = patience.Patience(
            chosen.scheduler.http_timeout_s, on_the_way_s=settings.ON_THE_WAY_S, clock=clock
        )
        self._window = window.Window(most=chosen.binds.most_in_flight, clock=clock)
        self._binder = binding.Binder(
            self._decider,
            api,
            asking,
            self._window,
            clock=clock,
            now_ns=time.time_ns,
            allowed=self._may_bind,
            patience=self._patience,
            timeout_s=chosen.bind_timeout_s,
        )
        self.reflectors: dict[str, reflector.Reflector[Any]] = {
            "nodes": reflector.Reflector(
                api, "/api/v1/nodes", nodes.Node, self.mirror.nodes, key=_name
            ),
            "pods": reflector.Reflector(api, "/api/v1/pods", pods.Pod, self.mirror.pods, key=_uid),
            _SICK_LISTS: reflector.Reflector(
                api,
                _CONFIGMAPS,
                sick_sink.SickList,
                self.mirror.sick,
                key=_name,
            ),
        }
        self._metrics = metrics.Metrics(
            metrics.Parts(
                self._decider, self._binder, self._window, self._kicker, self._nominations
            ),
            self.reflectors,
            self.stopped,
        )

    def application(self) -> routes.Routes:
        """What is served."""
        return serving.application(
            serving.Parts(
                self._decider,
                self._filter,
                self._questions,
                self._patience,
                self._binder,
                self._metrics,
                self._api,
                self.stopped,
                self._certified,
            )
        )

    def stopped(self) -> str:
        """Why it does not answer just now; empty if it does."""
        if self._leaving or not self._leads():
            return texts.NOT_LEADING
        unread = self._unread()
        if not unread and self._settled_term != self._term:
            unread = ["what became of pods that wait"]
        return texts.NOT_READY.format(kinds=", ".join(unread)) if unread else ""

    async def work(self) -> NoReturn:
        """All that goes on while requests are answered."""
        async with asyncio.TaskGroup() as group:
            if self._lease is not None:
                group.create_task(self._lease.run())
            group.create_task(self._read(group))
            group.create_task(self._tick())
            group.create_task(self._kicker.run(self._decider))
            group.create_task(self._doubts.run())
            group.create_task(self._nominations.run())
            group.create_task(learning.run(self.mirror))
        raise AssertionError("tasks that never end have ended")

    def refuse(self) -> None:
        """Answer nothing any more; what is under way goes on."""
        self._leaving = True

    async def leave(self) -> None:
        """Give the lease back, so that another replica need not wait for its end."""
        if self._lease is not None and not self._binder.busy:
            await self._lease.release()

    async def _read(self, group: asyncio.TaskGroup) -> None:
        start = time.monotonic()
        gc.disable()  # what is read stays, and looking for garbage in it stops everything
        group.create_task(self.reflectors["nodes"].run())
        await self.reflectors["nodes"].synced.wait()
        await self._check_rights()
        for kind in self.reflectors.keys() - {"nodes"}:
            group.create_task(self.reflectors[kind].run())
        for each in self.reflectors.values():
            await each.synced.wait()
        self.mirror.alone = self._lease is None
        _settle_down()
        there, granted = (
            len(self.mirror.nodes.keys()),
            sum(1 for _ in self.mirror.fleet.all_grants()),
        )
        took_s = time.monotonic() - start
        log.info("read %d nodes and %d grants in %.2f s", there, granted, took_s)

    async def _check_rights(self) -> None:
        """gpushare's own role has no right to read ConfigMaps; all but sick cards works without."""
        try:
            await self._api.get(_CONFIGMAPS, sick_sink.SickList, {"limit": "1"})
        except kube_errors.Forbidden as error:
            del self.reflectors[_SICK_LISTS]
            self.mirror.problems.set(
                "configmaps of kube-system",
                f"{error}; cards that are listed as sick there are used all the same: allow list "
                "and watch, as deploy/extender.yaml does, and start the extender again",
            )
        except kube_errors.KubeError as error:
            log.warning("%s", error)  # the reflector tries again

    async def _tick(self) -> NoReturn:
        answered = False
        while True:
            self._take_over()
            self._settle_predecessor()
            self._decider.binds.expire()
            if not self.stopped() and not answered and self.mirror.waiting:
                self._kicker.wake()  # our predecessor may have refused them, on a past state
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
            work = asyncio.sleep(0) if given else self._takeover.run()
            self._settling = asyncio.ensure_future(work)

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
        """What is wrong with how others serve us."""
        problems = self.mirror.problems
        problems.set("kube-scheduler", self._questions.problem)
        problems.set("kube-scheduler's httpTimeout", self._patience.problem)
        lag_s = self._decider.binds.echo_lag_s
        text = f"it is {lag_s:.0f} s behind; what was freed is known late" if lag_s > _LAG_S else ""
        problems.set("the watch of pods", text)

    def _unread(self) -> list[str]:
        return [kind for kind, each in self.reflectors.items() if not each.synced.is_set()]

    def _take_over(self) -> None:
        """Whoever begins to lead reads everything once more, before anything is decided."""
        if self._lease is None or not self._lease.leading or self._term == self._lease.term:
            return
        for each in self.reflectors.values():
            each.relist()
        self._term = self._lease.term

    def _leads(self) -> bool:
        return self._lease is None or (self._lease.leading and self._term == self._lease.term)

    def _may_bind(self) -> str:
        """A bind must have ended before another replica can lead."""
        if self._lease is not None and self._lease.left_s() < self._bind_timeout_s + _MARGIN_S:
            return texts.NOT_LEADING
        return self.stopped()


def _lease(leader: settings.Leader, api: kube.Api) -> lease.Lease | None:
    if not leader.elect:
        return None
    return lease.Lease(
        api,
        namespace=leader.namespace,
        name=leader.name,
        identity=f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}",
        duration_s=leader.lease_s,
        renew_s=leader.renew_s,
    )


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _settle_down() -> None:
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)
    gc.enable()


def _name(item: nodes.Node | sick_sink.SickList) -> str:
    return item.metadata.name


def _uid(pod: pods.Pod) -> str:
    return pod.metadata.uid
