"""The parts of an extender around a cluster, wired as the program wires them, without HTTP."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable

from partage.kube import api as kube
from partage.scheduler import http_server, metrics, nominations, requeue
from partage.scheduler.binds import (
    doubts,
    pod_lookup,
    pod_patches,
    scheduler_timeout,
    send_window,
    takeover,
)
from partage.scheduler.gpu_objects import keeper
from partage.scheduler.verbs import binding
from tests.scheduler import small_cluster

Sleep = Callable[[float], Awaitable[None]]


async def _no_time(_seconds: float) -> None:
    await asyncio.sleep(0)


class Wired:
    """What binds pods, and finds out what became of them."""

    def __init__(
        self,
        cluster: small_cluster.Cluster,
        api: kube.Api,
        *,
        most: int = 32,
        sleep: Sleep | None = None,
    ) -> None:
        self.cluster = cluster
        self.stopped = ""
        clock, binds = cluster.clock, cluster.binds
        self.patches = pod_patches.PodPatches(
            api, now=lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        )
        self.lookup = pod_lookup.PodLookup(cluster.mirror, binds, api, clock=clock)
        self.doubts = doubts.Doubts(binds, self.lookup, self.patches, clock=clock)
        self.takeover = takeover.Takeover(
            cluster.mirror, self.lookup, self.patches, clock=clock, sleep=sleep or _no_time
        )
        self.nominations = nominations.Nominations(cluster.mirror, self.patches, clock=clock)
        self.filter = cluster.own_filter(nominations=self.nominations)
        self.window = send_window.Window(most=most, clock=clock)
        self.scheduler_timeout = scheduler_timeout.SchedulerTimeout(
            10.0, on_the_way_s=0.5, clock=clock
        )
        self.binder = binding.Binder(
            cluster.mirror,
            binds,
            api,
            self.lookup,
            self.window,
            clock=clock,
            now_ns=lambda: 1_700_000_000_000_000_000,
            allowed=lambda: self.stopped,
            scheduler_timeout=self.scheduler_timeout,
            timeout_s=4.0,
            sleep=sleep or _no_time,
        )
        self.requeue = requeue.Requeue(api, leading=lambda: True)
        self._api = api

    def served(self, *, certified: bool = False) -> http_server.Parts:
        """What the HTTP side needs."""
        cluster = self.cluster
        numbers = metrics.Metrics(
            metrics.Parts(
                cluster.mirror,
                cluster.binds,
                self.binder,
                self.window,
                self.requeue,
                self.nominations,
                keeper.Keeper(self._api, cluster.mirror, ready=lambda: not self.stopped),
            ),
            {},
            lambda: self.stopped,
        )
        return http_server.Parts(
            cluster.mirror,
            cluster.binds,
            cluster.decider,
            self.filter,
            cluster.filter_history,
            self.scheduler_timeout,
            self.binder,
            numbers,
            self._api,
            lambda: self.stopped,
            certified,
        )
