"""The page of an agent's report, or of a folder of fences: cards, containers, problems.

Columns and their order are read by people's scripts (``partage top --once | awk``), and stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from partage.agent import reporting
from partage.cli.top import grid, pages
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


def page(report: reporting.Report, rates: Rates) -> pages.Page:
    """What a node does, and what its containers got since the last report."""
    made = pages.Page(
        node=report.node,
        taken_ns=report.taken_ns,
        cards=pages.Block(CARD, tuple(map(_card, report.cards))),
        tenants=pages.Block(CONTAINER, tuple(_containers(report, rates))),
        problems=pages.Block(PROBLEM, tuple(_problems(report))),
    )
    return made if made.blocks else msgspec.structs.replace(made, nothing=_NOTHING)


def _card(card: reporting.CardReport) -> pages.Line:
    cells = (
        *(grid.number(card.index), grid.text(card.model), grid.health(card.healthy)),
        *(grid.bar(card.used_mib, card.memory_mib), grid.number(card.used_mib)),
        *(grid.number(card.granted_mib), grid.number(card.memory_mib)),
        *(grid.bar(card.utilization_percent, 100), grid.percent(card.granted_percent)),
        grid.number(card.tenants),
    )
    return pages.Line(cells=cells, key=(card.uuid,))


def _containers(report: reporting.Report, rates: Rates) -> Iterator[pages.Line]:
    """One line for each container and card, by card."""
    for each in sorted(report.containers, key=_place):
        rate = rates.get(each.key) or tallies.Rate(None, None)
        yield pages.Line(
            cells=_container(each, rate),
            key=each.key,
            words=f"{each.namespace} {each.pod or each.uid} {each.container}",
            target=_NO_POD.format(each.uid) if not each.pod else _POD.format(each.pod),
        )


def _container(each: reporting.ContainerReport, rate: tallies.Rate) -> grid.Row:
    return (
        *(grid.number(each.index), grid.text(each.namespace)),
        *(grid.text(each.pod or each.uid), grid.text(each.container)),
        *(grid.granted(each.memory_mib), grid.used(each.used_bytes, each.memory_mib)),
        *(grid.mib(each.peak_bytes), grid.count(each.refused), _compute(each)),
        *(grid.percent(rate.compute_percent), grid.waited(rate.throttled_percent)),
        grid.fence(each.fence),
    )


def _problems(report: reporting.Report) -> Iterator[pages.Line]:
    """One line for each, sick cards among them."""
    for card in report.cards:
        if card.reason:
            yield problem(f"card {card.index}", card.reason)
    for each in report.problems:
        yield problem(each.object, each.text)


def problem(what: str, text: str) -> pages.Line:
    return pages.Line(cells=(grid.text(what), grid.bad(text)))


def _place(each: reporting.ContainerReport) -> tuple[bool, int, str, str, str]:
    index = -1 if each.index is None else each.index
    return each.index is None, index, each.namespace, each.pod or each.uid, each.container


def _compute(each: reporting.ContainerReport) -> grid.Cell:
    cell = grid.asked(each.mode, each.compute_percent, each.ceiling_percent)
    if not each.paused:
        return cell
    return grid.Cell(f"{cell.text}, paused", grid.Tone.WARNING, rank=cell.rank)
