"""Metrics of the extender: few series, none per card, node or pod.

A scrape that prints a line for each card of a large cluster stops every decision meanwhile; those
numbers belong to the agents on the nodes. What is granted is told by group: nodes whose cards are
of one model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

import msgspec
import prometheus_client as prometheus
from prometheus_client import core

from partage.kube import reflector
from partage.scheduler import binding, binds, deciding, kicking, nominations, window

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST

_MIB = 1 << 20
_AT_ONCE = 256  # nodes between two breaths
_LATENCIES_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Parts(msgspec.Struct, frozen=True):
    """What is asked for numbers."""

    decider: deciding.Decider
    binder: binding.Binder
    window: window.Window
    kicker: kicking.Kicker
    nominations: nominations.Nominations


class Metrics:
    """What is counted, and the page that tells it."""

    def __init__(
        self,
        parts: Parts,
        reflectors: Mapping[str, reflector.Reflector[object]],
        stopped: Callable[[], str],
    ) -> None:
        self._parts = parts
        self._decider = parts.decider
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
            "Clients that left before their answer, by path",
            ["path"],
            registry=self._registry,
        )
        self._registry.register(self)

    async def page(self) -> bytes:
        """The text of a scrape."""
        await self._add_up()
        return prometheus.generate_latest(self._registry)

    def collect(self) -> Iterator[core.Metric]:
        """What is read when it is asked for, in place of being counted all the time."""
        decider = self._decider
        world = decider.mirror.fleet
        gauge, counter = core.GaugeMetricFamily, core.CounterMetricFamily
        leads = 0 if self._stopped() else 1
        yield gauge("partage_ready", "Whether this replica leads and answers", value=leads)
        yield gauge("partage_holds", "Reservations that are not bound yet", value=world.holds)
        yield gauge("partage_waiting_pods", "Pods that wait", value=len(decider.mirror.waiting))
        yield gauge(
            "partage_problems", "Objects with a problem", value=len(decider.mirror.problems)
        )
        kicks, nominated = self._parts.kicker.kicks, self._parts.nominations.made
        yield counter("partage_kicks", "Times kube-scheduler was told of room", value=kicks)
        yield counter(
            "partage_nominations", "Nodes named that were not asked about", value=nominated
        )
        yield from self._binds()
        yield from self._watches()
        yield from self._granted()

    def _binds(self) -> Iterator[core.Metric]:
        gauge, counter = core.GaugeMetricFamily, core.CounterMetricFamily
        binder, places = self._parts.binder, self._parts.window
        outcomes = counter("partage_binds", "Binds by outcome", labels=["outcome"])
        outcomes.add_metric(["bound"], binder.bound)
        outcomes.add_metric(["failed"], binder.failed)
        outcomes.add_metric(["late"], binder.late)
        yield outcomes
        yield counter("partage_bindings_sent", "Bindings sent", value=binder.sent)
        yield counter("partage_bind_conflicts", "Binds answered by 409", value=binder.conflicts)
        doubts = sum(isinstance(life, binds.InDoubt) for life in self._decider.binds)
        yield gauge("partage_binds_in_doubt", "Binds without an answer", value=doubts)
        yield gauge("partage_bindings_in_flight", "Bindings under way", value=places.in_flight)
        yield gauge("partage_bindings_waiting", "Binds that wait to be sent", value=places.waiting)
        yield gauge("partage_bindings_window", "Most Bindings at once now", value=places.size)

    def _watches(self) -> Iterator[core.Metric]:
        lag_s = self._decider.binds.echo_lag_s
        yield core.GaugeMetricFamily(
            "partage_watch_lag_seconds",
            "How far the watch of pods is behind, by what it says of pods that were bound here",
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
        for kind, each in self._reflectors.items():
            waiting.add_metric([kind], each.waiting)
            seen.add_metric([kind], each.seen)
            gaps.add_metric([kind], each.gaps)
            unreadable.add_metric([kind], each.unreadable)
        yield from (waiting, seen, gaps, unreadable)

    def _granted(self) -> Iterator[core.Metric]:
        told = (
            ("partage_nodes", "Nodes with cards", 1),
            ("partage_cards", "Cards", 1),
            ("partage_cards_sick", "Cards that are not healthy", 1),
            ("partage_cards_in_use", "Cards that somebody has a share of", 1),
            ("partage_memory_bytes", "Memory of all cards", _MIB),
            ("partage_memory_granted_bytes", "Memory granted", _MIB),
        )
        for i, (name, text, factor) in enumerate(told):
            family = core.GaugeMetricFamily(
                name, f"{text}, by model of the cards", labels=["group"]
            )
            for group, sums in sorted(self._groups.items()):
                family.add_metric([group], sums[i] * factor)
            yield family

    async def _add_up(self) -> None:
        """Sums by group, with a breath now and then."""
        groups: dict[str, list[int]] = {}
        for i, state in enumerate(list(self._decider.mirror.fleet.states())):
            if i % _AT_ONCE == 0:
                await asyncio.sleep(0)
            if not state.rooms:
                continue
            sums = groups.setdefault(state.rooms[0].card.model or "unknown", [0] * 6)
            sums[0] += 1
            sums[1] += len(state.rooms)
            sums[2] += sum([not room.card.healthy for room in state.rooms])
            sums[3] += len(state.uses)
            sums[4] += sum([room.memory_mib for room in state.rooms])
            sums[5] += sum([use.memory_mib for use in state.uses.values()])
        self._groups = groups
