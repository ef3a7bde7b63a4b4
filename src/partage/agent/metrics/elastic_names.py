"""elastic-gpu-exporter's names: cards, pods and containers, in percent of a card and in MiB.

Its percentages were first called ``..._utilization`` and later ``..._utilization_percentage``; both
are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import core

from partage.agent import reports
from partage.agent.metrics import old_rows, series

_TEXT = "Under the name that elastic-gpu-exporter uses"

Samples = list[tuple[tuple[str, ...], series.Number]]
SumsNumber = Callable[[old_rows.Sums], series.Number]


def metrics(report: reports.Report, rates: old_rows.Rates) -> Iterator[core.Metric]:
    """All of them."""
    rows = list(old_rows.rows(report, rates))
    pods = old_rows.grouped(rows, lambda row: (report.node, row.namespace, row.pod))
    containers = old_rows.grouped(
        rows, lambda row: (report.node, row.namespace, row.pod, row.container)
    )
    yield from _cards(report, old_rows.grouped(rows, lambda row: (row.uuid,)))
    yield from _uses("pod", _POD, pods)
    yield from _uses("container", (*_POD, "container"), containers)
    yield series.gauge("pod_mem_request", _TEXT, _POD, _numbers(pods, lambda sums: sums.asked_mib))
    yield series.gauge(
        "pod_core_request", _TEXT, _POD, _numbers(pods, lambda sums: sums.asked_percent)
    )
    node_mib, node_percent = sum(card.memory_mib for card in report.cards), 100 * len(report.cards)
    of_memory = _numbers(pods, lambda sums: _part(sums.used_mib, node_mib))
    yield from _percentages("pod_mem_occupy_node", _POD, of_memory)
    of_time = _numbers(pods, lambda sums: _part(sums.got_percent, node_percent))
    yield from _percentages("pod_core_occupy_node", _POD, of_time)


_POD = ("node", "namespace", "pod")
_CARD = ("node", "card")


def _cards(report: reports.Report, on: old_rows.Groups) -> Iterator[core.Metric]:
    cards = [((report.node, str(card.index)), card) for card in report.cards]
    got: Samples = [
        (key, old_rows.Sums(on.get((card.uuid,), [])).got_percent) for key, card in cards
    ]
    yield series.gauge("gpu_core_usage", _TEXT, _CARD, got)
    yield series.gauge("gpu_mem_usage", _TEXT, _CARD, [(key, card.used_mib) for key, card in cards])
    busy: Samples = [(key, card.utilization_percent) for key, card in cards]
    yield from _percentages("gpu_core_utilization", _CARD, busy)
    full: Samples = [(key, _part(card.used_mib, card.memory_mib)) for key, card in cards]
    yield from _percentages("gpu_mem_utilization", _CARD, full)


def _uses(kind: str, labels: tuple[str, ...], groups: old_rows.Groups) -> Iterator[core.Metric]:
    """What pods or containers use, and which part that is of what they asked for."""
    got = _numbers(groups, lambda sums: sums.got_percent)
    used = _numbers(groups, lambda sums: sums.used_mib)
    yield series.gauge(f"{kind}_core_usage", _TEXT, labels, got)
    yield series.gauge(f"{kind}_mem_usage", _TEXT, labels, used)
    of_time = _numbers(groups, lambda sums: _part(sums.got_percent, sums.asked_percent))
    yield from _percentages(f"{kind}_core_utilization", labels, of_time)
    of_memory = _numbers(groups, lambda sums: _part(sums.used_mib, sums.asked_mib))
    yield from _percentages(f"{kind}_mem_utilization", labels, of_memory)


def _percentages(name: str, labels: tuple[str, ...], samples: Samples) -> Iterator[core.Metric]:
    yield series.gauge(name, _TEXT, labels, samples)
    yield series.gauge(f"{name}_percentage", _TEXT, labels, samples)


def _numbers(groups: old_rows.Groups, number: SumsNumber) -> Samples:
    return [(key, number(old_rows.Sums(rows))) for key, rows in groups.items()]


def _part(number: series.Number, whole: float) -> series.Number:
    return None if number is None or not whole else 100 * number / whole
