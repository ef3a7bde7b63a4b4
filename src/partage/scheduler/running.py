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
import gc
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any, NoReturn

from aiohttp import web

from partage.core import fleet
from partage.dialects import nodes, pods
from partage.kube import api as kube
from partage.kube import credentials, lease, reflector
from partage.kube import errors as kube_errors
from partage.scheduler import (
    binding,
    deciding,
    kicking,
    learning,
    metrics,
    mirror,
    serving,
    settings,
    sick_sink,
    texts,
    units,
)
from partage.services import listening, stopping

log = logging.getLogger(__name__)

_SICK_LISTS = "configmaps"
_CONFIGMAPS = "/api/v1/namespaces/kube-system/configmaps"

BIND_TIMEOUT_S = 4.0  # kube-scheduler waits five seconds for us
_MARGIN_S = 1.0  # of the lease, beyond the longest bind
_TICK_S = 0.25
_YOUNG = 20_000  # objects that are made before the youngest are looked through


async def run(chosen: settings.Settings, *, started: Callable[[str], None]) -> None:
    """Serve until a signal says to stop; ``started`` is told the address."""
    known = credentials.load(chosen.cluster.kubeconfig or None, chosen.cluster.context or None)
    stop = stopping.on_signals()
    server = chosen.server
    address = listening.Address(server.address, server.port, serving.tls(server))
    async with kube.Api(known) as api:
        extender = Extender(chosen, api)
        async with listening.at(address, extender.application()) as url:
            started(url)
            if warning := serving.exposure(server):
                log.warning("%s", warning)
            await stopping.until(stop, extender.work(), ending=extender.refuse)
        # Only now: a bind that was under way has ended, and another replica may begin.
        await extender.leave()


class Extender:
    """The parts, put together."""

    def __init__(self, chosen: settings.Settings, api: kube.Api) -> None:
        decisions = chosen.decisions
        fixed = decisions.memory_unit != "auto"
        self._api = api
        self._limit = decisions.limit
        self._certified = bool(chosen.server.client_ca)
        self._lease = _lease(chosen.leader, api)
        self._leaving = False
        self._term = 0  # of the lease, for which everything was read
        self._kicker = kicking.Kicker(api, leading=self._leads)
        self.mirror = mirror.Mirror(
            fleet.standard(decisions.policy),
            units.Unit(decisions.dialects, fixed=fixed),
            freed=self._kicker.freed,
        )
        self._decider = deciding.Decider(self.mirror, clock=time.monotonic, hold_s=decisions.hold_s)
        self._binder = binding.Binder(
            self._decider,
            api,
            now_ns=time.time_ns,
            allowed=self._may_bind,
            timeout_s=BIND_TIMEOUT_S,
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
            self._decider, self._binder, self._kicker, self.reflectors, self.stopped
        )

    def application(self) -> web.Application:
        """What is served."""
        return serving.application(
            serving.Parts(
                self._decider,
                self._binder,
                self._metrics,
                self._api,
                self.stopped,
                self._limit,
                self._certified,
            )
        )

    def stopped(self) -> str:
        """Why it does not answer just now; empty if it does."""
        if self._leaving or not self._leads():
            return texts.NOT_LEADING
        unread = [kind for kind, each in self.reflectors.items() if not each.synced.is_set()]
        return texts.NOT_READY.format(kinds=", ".join(unread)) if unread else ""

    async def work(self) -> NoReturn:
        """All that goes on while requests are answered."""
        async with asyncio.TaskGroup() as group:
            if self._lease is not None:
                group.create_task(self._lease.run())
            group.create_task(self._read(group))
            group.create_task(self._tick())
            group.create_task(self._kicker.run(self._decider))
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
            self._decider.expire()
            if not self.stopped() and not answered:
                self._begin()
            answered = not self.stopped()
            if answered:
                await self._binder.settle()
            await asyncio.sleep(_TICK_S)

    def _begin(self) -> None:
        """Whoever waits may have been refused by our predecessor, on a state of the past."""
        node = next(iter(self.mirror.nodes.keys()), "")
        if self.mirror.waiting and node:
            self._decider.refused = True
            self._kicker.freed(node)

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
        if self._lease is not None and self._lease.left_s() < BIND_TIMEOUT_S + _MARGIN_S:
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


def _settle_down() -> None:
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 50)
    gc.enable()


def _name(item: nodes.Node | sick_sink.SickList) -> str:
    return item.metadata.name


def _uid(pod: pods.Pod) -> str:
    return pod.metadata.uid
