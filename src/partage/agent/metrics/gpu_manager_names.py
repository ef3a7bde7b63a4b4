"""gpu-manager's names: containers by card, ``gpu0``, and in all, ``total``; cards and MiB."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import core

from partage.agent import reports
from partage.agent.metrics import old_rows, series

_TEXT = "Under the name that gpu-manager uses"
_CONTAINER = ("pod_name", "namespace", "node", "container_name")

SumsNumber = Callable[[old_rows.Sums], series.Number]


def metrics(report: reports.Report, rates: old_rows.Rates) -> Iterator[core.Metric]:
    """All of them."""
    groups = old_rows.grouped(
        old_rows.rows(report, rates),
        lambda row: (row.pod, row.namespace, report.node, row.container),
    )
    for name, label, number in _USED:
        samples = [*_by_card(groups, number), *_in_all(groups, number)]
        yield series.gauge(name, _TEXT, (*_CONTAINER, label), samples)
    for name, label, number in _ASKED:
        yield series.gauge(name, _TEXT, (*_CONTAINER, label), _in_all(groups, number))


_USED: tuple[tuple[str, str, SumsNumber], ...] = (
    ("container_gpu_utilization", "gpu", lambda sums: sums.got_percent),
    ("container_gpu_memory_total", "gpu_memory", lambda sums: sums.used_mib),
)
_ASKED: tuple[tuple[str, str, SumsNumber], ...] = (
    ("container_request_gpu_utilization", "req_of_gpu", lambda sums: sums.asked_percent / 100),
    ("container_request_gpu_memory", "req_of_gpu_memory", lambda sums: sums.asked_mib),
)


def _by_card(groups: old_rows.Groups, number: SumsNumber) -> series.Samples:
    for key, rows in groups.items():
        for row in rows:
            yield (*key, f"gpu{row.report.index}"), number(old_rows.Sums([row]))


def _in_all(groups: old_rows.Groups, number: SumsNumber) -> series.Samples:
    for key, rows in groups.items():
        yield (*key, "total"), number(old_rows.Sums(rows))
