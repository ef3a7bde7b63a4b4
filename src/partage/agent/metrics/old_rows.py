"""What the older systems told of containers, from a report: their units, their sums."""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from partage.agent import reports
from partage.agent.metrics import series
from partage.core.quantities import MIB
from partage.fence import usage_rows

Rates = Mapping[reports.Key, usage_rows.Rate]
Groups = Mapping[tuple[str, ...], list["Row"]]


class Row(msgspec.Struct, frozen=True):
    """A container on a card."""

    report: reports.ContainerReport
    position: int  # of the card among those of the container
    memory_mib: int  # granted, or all of the card
    got_percent: float | None  # of the card's time, lately

    @property
    def used_mib(self) -> int | None:
        """Its memory now."""
        return None if self.report.used_bytes is None else self.report.used_bytes // MIB


class Sums:
    """What several rows are together; None if it is not known of all of them."""

    def __init__(self, rows: Collection[Row]) -> None:
        self.used_mib = series.total(row.used_mib for row in rows)
        self.got_percent = series.total(row.got_percent for row in rows)
        self.asked_mib = sum(row.memory_mib for row in rows)
        self.asked_percent = sum(row.report.compute_percent for row in rows)


def rows(report: reports.Report, rates: Rates) -> Iterator[Row]:
    """All containers, card by card."""
    whole_mib = {card.uuid: card.memory_mib for card in report.cards}
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    for container in report.containers:
        rate = rates.get(container.key)
        name = (container.uid, container.container)
        yield Row(
            container,
            seen[name],
            container.memory_mib or whole_mib.get(container.uuid, 0),
            rate.compute_percent if rate else None,
        )
        seen[name] += 1


def grouped(
    all_rows: Iterable[Row], key: Callable[[reports.ContainerReport], tuple[str, ...]]
) -> Groups:
    """Rows by what they are called."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in all_rows:
        groups.setdefault(key(row.report), []).append(row)
    return groups
