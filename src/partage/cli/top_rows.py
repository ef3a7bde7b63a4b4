"""The page of an agent's report, or of a folder of fences: cards, containers, problems.

Columns and their order are read by people's scripts (``partage top --once | awk``), and stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from partage.agent import reporting
from partage.cli import top_cells, top_pages
from partage.fence import tallies

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
_POD = "{} is a pod, and is not signalled from here; `kubectl delete pod` ends it"
_NO_POD = "of {} only the fence is known, not its processes; see `partage fence show`"

Rates = Mapping[reporting.Key, tallies.Rate]


def page(report: reporting.Report, rates: Rates) -> top_pages.Page:
    """What a node does, and what its containers got since the last report."""
    made = top_pages.Page(
        node=report.node,
        taken_ns=report.taken_ns,
        cards=top_pages.Block(CARD, tuple(map(_card, report.cards))),
        tenants=top_pages.Block(CONTAINER, tuple(_containers(report, rates))),
        problems=top_pages.Block(PROBLEM, tuple(_problems(report))),
    )
    return made if made.blocks else msgspec.structs.replace(made, nothing=_NOTHING)


def _card(card: reporting.CardReport) -> top_pages.Line:
    cells = (
        *(top_cells.number(card.index), top_cells.text(card.model), top_cells.health(card.healthy)),
        *(top_cells.bar(card.used_mib, card.memory_mib), top_cells.number(card.used_mib)),
        *(top_cells.number(card.granted_mib), top_cells.number(card.memory_mib)),
        *(top_cells.bar(card.utilization_percent, 100), top_cells.percent(card.granted_percent)),
        top_cells.number(card.tenants),
    )
    return top_pages.Line(cells=cells, key=(card.uuid,))


def _containers(report: reporting.Report, rates: Rates) -> Iterator[top_pages.Line]:
    """One line for each container and card, by card."""
    for each in sorted(report.containers, key=_place):
        rate = rates.get(each.key) or tallies.Rate(None, None)
        yield top_pages.Line(
            cells=_container(each, rate),
            key=each.key,
            words=f"{each.namespace} {each.pod or each.uid} {each.container}",
            target=_NO_POD.format(each.uid) if not each.pod else _POD.format(each.pod),
        )


def _container(each: reporting.ContainerReport, rate: tallies.Rate) -> top_cells.Row:
    return (
        *(top_cells.number(each.index), top_cells.text(each.namespace)),
        *(top_cells.text(each.pod or each.uid), top_cells.text(each.container)),
        *(_memory(each), top_cells.used(each.used_bytes, each.memory_mib)),
        *(top_cells.mib(each.peak_bytes), top_cells.count(each.refused), _compute(each)),
        *(top_cells.percent(rate.compute_percent), top_cells.waited(rate.throttled_percent)),
        top_cells.text(each.fence),
    )


def _problems(report: reporting.Report) -> Iterator[top_pages.Line]:
    """One line for each, sick cards among them."""
    for card in report.cards:
        if card.reason:
            yield problem(f"card {card.index}", card.reason)
    for each in report.problems:
        yield problem(each.object, each.text)


def problem(what: str, text: str) -> top_pages.Line:
    return top_pages.Line(cells=(top_cells.text(what), top_cells.bad(text)))


def _place(each: reporting.ContainerReport) -> tuple[bool, int, str, str, str]:
    index = -1 if each.index is None else each.index
    return each.index is None, index, each.namespace, each.pod or each.uid, each.container


def _memory(each: reporting.ContainerReport) -> top_cells.Cell:
    if each.memory_mib:
        return top_cells.number(each.memory_mib)
    return top_cells.Cell("all", rank=float("inf"))


def _compute(each: reporting.ContainerReport) -> top_cells.Cell:
    cell = top_cells.asked(each.mode, each.compute_percent, each.ceiling_percent)
    if not each.paused:
        return cell
    return top_cells.Cell(f"{cell.text}, paused", top_cells.Tone.WARNING, rank=cell.rank)
