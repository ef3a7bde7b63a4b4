"""The page of an agent's report, or of a folder of fences: cards, containers, problems.

Columns and their order are read by people's scripts (``partage top --once | awk``), and stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from partage.agent import reports
from partage.cli.display import pages, table_cells
from partage.fence import usage_rows

CARD = (
    *("CARD", "MODEL", "HEALTH", "MEMORY", "USED(MiB)", "GRANTED(MiB)", "TOTAL(MiB)"),
    *("COMPUTE", "GRANTED", "TENANTS"),
)
CONTAINER = (
    *("CARD", "NAMESPACE", "POD", "CONTAINER", "ASKED(MiB)", "USED(MiB)", "PEAK(MiB)", "REFUSED"),
    *("COMPUTE", "GOT", "WAITED", "FENCE"),
)
PROBLEM = ("OBJECT", "PROBLEM")

_NOTHING = "No cards and no containers."
_POD = "{} is a pod; `kubectl delete pod` ends it"
_NO_POD = "the processes of {} are not known, only its fence; see `partage fence show`"

Rates = Mapping[reports.Key, usage_rows.Rate]


def page(report: reports.Report, rates: Rates) -> pages.Page:
    """What a node does, and what its containers got since the last report."""
    made = pages.Page(
        node=report.node,
        taken_ns=report.taken_ns,
        cards=pages.Block(CARD, tuple(map(_card, report.cards))),
        tenants=pages.Block(CONTAINER, tuple(_containers(report, rates))),
        problems=pages.Block(PROBLEM, tuple(_problems(report))),
    )
    return made if made.blocks else msgspec.structs.replace(made, nothing=_NOTHING)


def _card(card: reports.CardReport) -> pages.Line:
    cells = (
        table_cells.number(card.index),
        table_cells.text(card.model),
        table_cells.health(card.healthy, card.cordoned),
        table_cells.bar(card.used_mib, card.memory_mib),
        table_cells.number(card.used_mib),
        table_cells.number(card.granted_mib),
        table_cells.number(card.memory_mib),
        table_cells.bar(card.utilization_percent, 100),
        table_cells.percent(card.granted_percent),
        table_cells.number(card.tenants),
    )
    return pages.Line(cells=cells, key=(card.uuid,))


def _containers(report: reports.Report, rates: Rates) -> Iterator[pages.Line]:
    """One line for each container and card, by card."""
    for container in sorted(report.containers, key=_by_card):
        rate = rates.get(container.key) or usage_rows.Rate(None, None)
        yield pages.Line(
            cells=_container(container, rate),
            key=container.key,
            words=f"{container.namespace} {container.pod or container.uid} {container.container}",
            target=_NO_POD.format(container.uid)
            if not container.pod
            else _POD.format(container.pod),
        )


def _container(container: reports.ContainerReport, rate: usage_rows.Rate) -> table_cells.Row:
    return (
        table_cells.number(container.index),
        table_cells.text(container.namespace),
        table_cells.text(container.pod or container.uid),
        table_cells.text(container.container),
        table_cells.granted(container.memory_mib),
        table_cells.used(container.used_bytes, container.memory_mib),
        table_cells.mib(container.peak_bytes),
        table_cells.count(container.refused),
        _compute(container),
        table_cells.percent(rate.compute_percent),
        table_cells.waited(rate.throttled_percent),
        table_cells.fence(container.fence),
    )


def _problems(report: reports.Report) -> Iterator[pages.Line]:
    """One line for each, unhealthy cards among them."""
    for card in report.cards:
        if card.reason:
            yield problem(f"card {card.index}", card.reason)
        if card.cordon_reason:
            yield problem(f"card {card.index}", f"cordoned: {card.cordon_reason}")
    for listed in report.problems:
        yield problem(listed.object, listed.text)


def problem(what: str, text: str) -> pages.Line:
    return pages.Line(cells=(table_cells.text(what), table_cells.bad(text)))


def _by_card(container: reports.ContainerReport) -> tuple[bool, int, str, str, str]:
    index = -1 if container.index is None else container.index
    return (
        container.index is None,
        index,
        container.namespace,
        container.pod or container.uid,
        container.container,
    )


def _compute(container: reports.ContainerReport) -> table_cells.Cell:
    share = container.share_percent
    percent = container.compute_percent if share is None else max(1, round(share))
    cell = table_cells.asked(container.mode, percent, container.ceiling_percent)
    if not container.paused:
        return cell
    return table_cells.Cell(f"{cell.text}, paused", table_cells.Tone.WARNING, rank=cell.rank)
