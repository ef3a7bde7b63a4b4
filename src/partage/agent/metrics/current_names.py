"""Metrics under our own names: what each card and each container was granted and uses.

Here is where series by card and container belong: a node has few of both. All numbers come from one
report (:mod:`partage.agent.reports`), so a scrape is consistent in itself; what is not known has
no sample, rather than a zero. A pod that is gone is in no report, so its series end with it.

Labels hold what Kubernetes and the driver bound (names, uuids, levels), never texts of errors. What
the agent counts about itself is registered at ``Metrics.registry``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec
import prometheus_client as prometheus
from prometheus_client import core

from partage.agent import reports
from partage.agent.metrics import old_names, series
from partage.core.quantities import MIB
from partage.fence import usage_rows
from partage.fence.watch import escapes

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST

_APART_NS = 5 * 10**9  # between two reports that rates are computed from, at least
_S = 1e-9  # per nanosecond
_RATIO = 0.01  # per percent

_CARD = ("node", "uuid", "index")
_CONTAINER = (*_CARD, "namespace", "pod", "container")

T = TypeVar("T")
Rows = Sequence[tuple[tuple[str, ...], T]]  # label values, and whose they are


class _Series(msgspec.Struct, Generic[T], frozen=True):
    name: str
    text: str
    number: Callable[[T], series.Number]
    counts: bool = False

    def family(self, labels: Sequence[str], rows: Rows[T]) -> core.Metric:
        make = series.counter if self.counts else series.gauge
        samples = ((values, self.number(row)) for values, row in rows)
        return make(self.name, self.text, labels, samples)


class Metrics:
    """The page; ``old`` says whose old names it has, too (see the module ``old_names``)."""

    def __init__(self, old: Collection[str] = ()) -> None:
        self._old = old_names.families(old)
        self._before: reports.Report | None = None
        self.registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self.registry)
        prometheus.GCCollector(registry=self.registry)
        self._outside = prometheus.Counter(
            "partage_outside_fence",
            "Processes found outside their fence, by what was found and what was done",
            ("found", "then"),
            registry=self.registry,
        )

    def count(self, finding: escapes.Finding, then: escapes.Then) -> None:
        """The watch found a process, and this was done about it."""
        self._outside.labels(finding.kind.value, then.value).inc()

    def page(self, report: reports.Report) -> bytes:
        """The text of a scrape."""
        registry = prometheus.CollectorRegistry()
        registry.register(_Collector(report, self._rates(report), self._old))
        return prometheus.generate_latest(registry) + prometheus.generate_latest(self.registry)

    def _rates(self, now: reports.Report) -> dict[reports.Key, usage_rows.Rate]:
        """Since an earlier report, for any reader: old names tell rates, not counters."""
        before = self._before
        if before is None or now.taken_ns - before.taken_ns >= _APART_NS:
            self._before = now
        return reports.rates(before, now)


class _Collector(prometheus.registry.Collector):
    """A report as prometheus-client collects it."""

    def __init__(
        self,
        report: reports.Report,
        rates: dict[reports.Key, usage_rows.Rate],
        old: Collection[old_names.Family],
    ) -> None:
        self._report = report
        self._rates = rates
        self._old = old

    def collect(self) -> Iterator[core.Metric]:
        """Cards, containers, and both under old names."""
        report = self._report
        lost = [((report.node,), len(report.problems))]
        yield series.gauge(
            "partage_report_problems",
            "Problems of this report: what could not be read",
            ["node"],
            lost,
        )
        yield from _cards(report)
        yield from _containers(report)
        for family in self._old:
            yield from family(report, self._rates)


def _cards(report: reports.Report) -> Iterator[core.Metric]:
    rows = [((report.node, card.uuid, str(card.index)), card) for card in report.cards]
    models = (((*values, card.model or ""), 1) for values, card in rows)
    yield series.gauge("partage_card_info", "Cards by model", (*_CARD, "model"), models)
    for metric in _CARDS:
        yield metric.family(_CARD, rows)


def _containers(report: reports.Report) -> Iterator[core.Metric]:
    rows = [(_labels(report.node, row), row) for row in report.containers]
    fences = (((*values, row.fence or "none", row.mode), 1) for values, row in rows)
    labels = (*_CONTAINER, "level", "mode")
    yield series.gauge("partage_container_fence", "The fence in force", labels, fences)
    for metric in _CONTAINERS:
        yield metric.family(_CONTAINER, rows)


def _labels(node: str, row: reports.ContainerReport) -> tuple[str, ...]:
    index = "" if row.index is None else str(row.index)
    return node, row.uuid, index, row.namespace, row.pod, row.container


_CARDS = tuple(
    _Series[reports.CardReport](f"partage_card_{name}", text, number)
    for name, text, number in (
        ("memory_bytes", "Memory", lambda card: card.memory_mib * MIB),
        ("memory_granted_bytes", "Memory granted", lambda card: card.granted_mib * MIB),
        (
            "memory_used_bytes",
            "Memory in use by all processes",
            lambda card: series.scaled(card.used_mib, MIB),
        ),
        (
            "memory_unaccounted_bytes",
            "Memory in use that no fence counts and no known process holds",
            lambda card: series.scaled(card.unaccounted_mib, MIB),
        ),
        (
            "compute_granted_ratio",
            "Card time granted",
            lambda card: card.granted_percent * _RATIO,
        ),
        (
            "utilization_ratio",
            "Part of the driver's last sampling period in which it was busy",
            lambda card: series.scaled(card.utilization_percent, _RATIO),
        ),
        ("healthy", "Whether it is healthy", lambda card: int(card.healthy)),
        ("cordoned", "Whether it is cordoned", lambda card: int(card.cordoned)),
        ("containers", "Containers with a share of it", lambda card: card.tenants),
    )
)
_CONTAINERS = tuple(
    _Series[reports.ContainerReport](f"partage_container_{name}", text, number, counts)
    for name, text, number, counts in (
        (
            "memory_granted_bytes",
            "Memory granted; 0 means all memory of the card",
            lambda row: row.memory_mib * MIB,
            False,
        ),
        ("memory_used_bytes", "Memory in use", lambda row: row.used_bytes, False),
        ("memory_peak_bytes", "Most memory used at once", lambda row: row.peak_bytes, False),
        (
            "allocations_refused",
            "Allocations refused because of the quota",
            lambda row: row.refused,
            True,
        ),
        (
            "compute_granted_ratio",
            "Card time granted",
            lambda row: row.compute_percent * _RATIO,
            False,
        ),
        (
            "compute_ceiling_ratio",
            "Card time it may use while others are idle",
            lambda row: series.scaled(row.ceiling_percent, _RATIO),
            False,
        ),
        (
            "busy_seconds",
            "Card time it got",
            lambda row: series.scaled(row.busy_ns, _S),
            True,
        ),
        (
            "throttled_seconds",
            "Time that launches waited, summed over all processes",
            lambda row: series.scaled(row.throttled_ns, _S),
            True,
        ),
        ("launches_throttled", "Launches that had to wait", lambda row: row.throttled, True),
        ("launches", "Launches", lambda row: row.launches, True),
        ("paused", "Whether its launches are paused", lambda row: int(row.paused), False),
    )
)
