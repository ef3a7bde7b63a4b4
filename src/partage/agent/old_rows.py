"""What the older systems told of containers, from a report: their units, their sums."""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from partage.agent import reporting, series
from partage.core.quantities import MIB
from partage.fence import tallies

Rates = Mapping[reporting.Key, tallies.Rate]
Groups = Mapping[tuple[str, ...], list["Row"]]


class Row(msgspec.Struct, frozen=True):
    """A container on a card."""

    told: reporting.ContainerReport
    position: int  # of the card among those of the container
    memory_mib: int  # granted, or all of the card
    got_percent: float | None  # of the card's time, lately

    @property
    def used_mib(self) -> int | None:
        """Its memory now."""
        return None if self.told.used_bytes is None else self.told.used_bytes // MIB


class Sums:
    """What several rows are together; None if it is not known of all of them."""

    def __init__(self, rows: Collection[Row]) -> None:
        self.used_mib = series.total(row.used_mib for row in rows)
        self.got_percent = series.total(row.got_percent for row in rows)
        self.asked_mib = sum(row.memory_mib for row in rows)
        self.asked_percent = sum(row.told.compute_percent for row in rows)


def rows(report: reporting.Report, rates: Rates) -> Iterator[Row]:
    """All containers, card by card."""
    whole_mib = {card.uuid: card.memory_mib for card in report.cards}
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    for told in report.containers:
        rate = rates.get(told.key)
        container = (told.uid, told.container)
        yield Row(
            told,
            seen[container],
            told.memory_mib or whole_mib.get(told.uuid, 0),
            rate.compute_percent if rate else None,
        )
        seen[container] += 1


def grouped(
    all_rows: Iterable[Row], key: Callable[[reporting.ContainerReport], tuple[str, ...]]
) -> Groups:
    """Rows by what they are called."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in all_rows:
        groups.setdefault(key(row.told), []).append(row)
    return groups
