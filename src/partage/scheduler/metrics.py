"""Metrics of the extender: few series, none per card, node or pod.

A scrape that prints a line for each card of a large cluster stops every decision meanwhile; those
numbers belong to the agents on the nodes. What is granted is shown by group: nodes whose cards are
of one model; and by namespace for those that have a total.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Iterator, Mapping

import msgspec
import prometheus_client as prometheus
from prometheus_client import core

from partage.kube.reflection import reflector
from partage.scheduler import nominations, requeue
from partage.scheduler.binds import bind_states, send_window
from partage.scheduler.gpu_objects import keeper
from partage.scheduler.mirror import mirror as mirrors
from partage.scheduler.verbs import binding

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST

_MIB = 1 << 20
_AT_ONCE = 256  # nodes between two breaths
_LATENCIES_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Parts(msgspec.Struct, frozen=True):
    """What is asked for numbers."""

    mirror: mirrors.Mirror
    binds: bind_states.Binds
    binder: binding.Binder
    window: send_window.Window
    requeue: requeue.Requeue
    nominations: nominations.Nominations
    gpu_objects: keeper.Keeper


class Metrics:
    """What is counted, and the page that shows it."""

    def __init__(
        self,
        parts: Parts,
        reflectors: Mapping[str, reflector.Reflector[object]],
        stopped: Callable[[], str],
    ) -> None:
        self._parts = parts
        self._mirror = parts.mirror
        self._reflectors = reflectors
        self._stopped = stopped
        self._groups: dict[str, list[int]] = {}
        self._registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self._registry)
        prometheus.GCCollector(registry=self._registry)
        self.seconds = prometheus.Histogram(
            "partage_verb_seconds",
            "How long a request took, by verb",
            ["verb"],
            buckets=_LATENCIES_S,
            registry=self._registry,
        )
        self.gone = prometheus.Counter(
            "partage_clients_gone",
            "Clients that closed the connection before their answer, by path",
            ["path"],
            registry=self._registry,
        )
        self._registry.register(self)

    async def page(self) -> bytes:
        """The text of a scrape."""
        await self._add_up()
        return prometheus.generate_latest(self._registry)

    def collect(self) -> Iterator[core.Metric]:
        """What is read at each scrape, instead of being counted all the time."""
        mirror, holds = self._mirror, self._mirror.fleet.holds
        gauge, counter = core.GaugeMetricFamily, core.CounterMetricFamily
        leads = 0 if self._stopped() else 1
        yield gauge("partage_ready", "Whether this replica leads and answers", value=leads)
        yield gauge("partage_holds", "Reservations that are not bound yet", value=holds)
        yield gauge("partage_waiting_pods", "Pods that wait", value=len(mirror.waiting))
        yield gauge("partage_problems", "Objects with a problem", value=len(mirror.problems))
        patches, nominated = self._parts.requeue.patches, self._parts.nominations.made
        yield counter(
            "partage_kicks",
            "Patches that make kube-scheduler try refused pods again",
            value=patches,
        )
        yield counter(
            "partage_nominations",
            "Pods nominated to a node that kube-scheduler did not ask about",
            value=nominated,
        )
        yield from self._binds()
        yield from self._gpu_objects()
        yield from self._watches()
        yield from self._granted()
        yield from self._namespaces()

    def _binds(self) -> Iterator[core.Metric]:
        gauge, counter = core.GaugeMetricFamily, core.CounterMetricFamily
        binder, window = self._parts.binder, self._parts.window
        outcomes = counter("partage_binds", "Binds by outcome", labels=["outcome"])
        outcomes.add_metric(["bound"], binder.bound)
        outcomes.add_metric(["failed"], binder.failed)
        outcomes.add_metric(["late"], binder.late)
        yield outcomes
        yield counter("partage_bindings_sent", "Bindings sent", value=binder.sent)
        yield counter("partage_bind_conflicts", "Binds answered by 409", value=binder.conflicts)
        doubts = len(self._parts.binds.doubts())
        yield gauge("partage_binds_in_doubt", "Binds without an answer", value=doubts)
        yield gauge("partage_bindings_in_flight", "Bindings under way", value=window.in_flight)
        yield gauge("partage_bindings_waiting", "Binds that wait to be sent", value=window.waiting)
        yield gauge("partage_bindings_window", "Most Bindings at once now", value=window.size)

    def _gpu_objects(self) -> Iterator[core.Metric]:
        objects = self._parts.gpu_objects
        yield core.GaugeMetricFamily(
            "partage_gpu_objects_waiting", "GPU objects to be written", value=objects.waiting
        )
        yield core.CounterMetricFamily(
            "partage_gpu_object_writes", "Writes of GPU objects so far", value=objects.written
        )

    def _watches(self) -> Iterator[core.Metric]:
        lag_s = self._parts.binds.echo_lag_s
        yield core.GaugeMetricFamily(
            "partage_watch_lag_seconds",
            "How far the watch of pods is behind, measured on pods that were bound here",
            value=lag_s,
        )
        waiting = core.GaugeMetricFamily(
            "partage_watch_queue", "Events received and not applied yet", labels=["kind"]
        )
        seen = core.CounterMetricFamily("partage_watch_events", "Events so far", labels=["kind"])
        gaps = core.CounterMetricFamily(
            "partage_watch_gaps", "Times the whole list was read again", labels=["kind"]
        )
        unreadable = core.CounterMetricFamily(
            "partage_watch_unreadable", "Objects that were skipped", labels=["kind"]
        )
        for kind, objects in self._reflectors.items():
            waiting.add_metric([kind], objects.waiting)
            seen.add_metric([kind], objects.seen)
            gaps.add_metric([kind], objects.gaps)
            unreadable.add_metric([kind], objects.unreadable)
        yield from (waiting, seen, gaps, unreadable)

    def _granted(self) -> Iterator[core.Metric]:
        sums_by_group = (
            ("partage_nodes", "Nodes with cards", 1),
            ("partage_cards", "Cards", 1),
            ("partage_cards_unhealthy", "Cards that are not healthy", 1),
            ("partage_cards_cordoned", "Cards that are cordoned", 1),
            ("partage_cards_in_use", "Cards of which at least one pod has a share", 1),
            ("partage_memory_bytes", "Memory of all cards", _MIB),
            ("partage_memory_granted_bytes", "Memory granted", _MIB),
        )
        for i, (name, text, factor) in enumerate(sums_by_group):
            family = core.GaugeMetricFamily(
                name, f"{text}, by model of the cards", labels=["group"]
            )
            for group, sums in sorted(self._groups.items()):
                family.add_metric([group], sums[i] * factor)
            yield family

    def _namespaces(self) -> Iterator[core.Metric]:
        read = int(self._mirror.namespaces.read)
        text = "Whether namespaces can be read; if not, no total of a namespace holds"
        yield core.GaugeMetricFamily("partage_namespaces_read", text, value=read)
        accounts = sorted(self._mirror.fleet.limited_namespaces(), key=operator.itemgetter(0))
        for name, text, field, factor in (
            ("cards", "Cards on which its pods stand, counted for each pod", "cards", 1),
            ("memory_bytes", "Memory of cards", "memory_mib", _MIB),
            ("compute_percent", "Percent of cards' time", "compute_percent", 1),
        ):
            used = core.GaugeMetricFamily(
                f"partage_namespace_{name}",
                f"{text}: what a namespace with a total has",
                labels=["namespace"],
            )
            most = core.GaugeMetricFamily(
                f"partage_namespace_most_{name}",
                f"{text}: what a namespace may have",
                labels=["namespace"],
            )
            for namespace, account in accounts:
                used.add_metric([namespace], getattr(account.used, field) * factor)
                total = getattr(account.total, field)
                if total is not None:
                    most.add_metric([namespace], total * factor)
            yield from (used, most)

    async def _add_up(self) -> None:
        """Sums by group, with a breath now and then."""
        groups: dict[str, list[int]] = {}
        for i, state in enumerate(list(self._mirror.fleet.states())):
            if i % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if not state.rooms:
                continue
            sums = groups.setdefault(state.rooms[0].card.model or "unknown", [0] * 7)
            sums[0] += 1
            sums[1] += len(state.rooms)
            sums[2] += sum([not room.card.healthy for room in state.rooms])
            sums[3] += sum([room.cordoned for room in state.rooms])
            sums[4] += len(state.uses)
            sums[5] += sum([room.memory_mib for room in state.rooms])
            sums[6] += sum([use.memory_mib for use in state.uses.values()])
        self._groups = groups
