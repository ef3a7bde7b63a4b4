"""The tables of ``partage top`` as rows of cells: what is written, and how grave it is.

How they get to a screen or into a pipe is told in :mod:`partage.cli.top_drawing`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import msgspec

from partage.agent import reporting
from partage.cli import tables, top_sampling
from partage.core.quantities import MIB
from partage.fence import limits

UNKNOWN = "N/A"
CARD = (
    *("CARD", "MODEL", "HEALTH", "MEMORY", "USED(MiB)", "GRANTED(MiB)", "TOTAL(MiB)"),
    *("COMPUTE", "GRANTED", "TENANTS"),
)
CONTAINER = (
    *("CARD", "NAMESPACE", "POD", "CONTAINER", "ASKED(MiB)", "USED(MiB)", "PEAK(MiB)", "REFUSED"),
    *("COMPUTE", "GOT", "WAITED", "FENCE"),
)
PROBLEM = ("OBJECT", "PROBLEM")


class Tone(enum.Enum):
    """How grave a cell is."""

    PLAIN = "plain"
    FAINT = "faint"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class Cell(msgspec.Struct, frozen=True):
    """A text with a tone; ``part`` is what a bar beside it would show."""

    text: str
    tone: Tone = Tone.PLAIN
    part: float | None = None


Row = tuple[Cell, ...]


def cards(report: reporting.Report) -> Iterator[Row]:
    """One row for each card."""
    for card in report.cards:
        memory = None if card.used_mib is None else card.used_mib / card.memory_mib
        busy = None if card.utilization_percent is None else card.utilization_percent / 100
        yield (
            *(Cell(str(card.index)), _text(card.model), _health(card)),
            *(_bar(memory), _number(card.used_mib), Cell(str(card.granted_mib))),
            *(Cell(str(card.memory_mib)), _bar(busy), Cell(f"{card.granted_percent}%")),
            Cell(str(card.tenants)),
        )


def containers(sample: top_sampling.Sample) -> Iterator[Row]:
    """One row for each container and card, by card."""
    for each in sorted(sample.report.containers, key=_place):
        rate = sample.rates.get(each.key) or reporting.Rate(None, None)
        yield (
            *(
                _number(each.index),
                _text(each.namespace),
                Cell(tables.printable(each.pod or each.uid)),
            ),
            *(_text(each.container), Cell(_asked_mib(each)), _used(each), _mib(each.peak_bytes)),
            _count(each.refused),
            *(Cell(_asked(each)), _percent(rate.compute_percent), _waited(rate)),
            _text(each.fence),
        )


def problems(report: reporting.Report) -> Iterator[Row]:
    """One row for each, sick cards among them."""
    for card in report.cards:
        if card.reason:
            yield Cell(f"card {card.index}"), Cell(tables.printable(card.reason), Tone.BAD)
    for each in report.problems:
        yield Cell(tables.printable(each.object)), Cell(tables.printable(each.text), Tone.BAD)


def _place(each: reporting.ContainerReport) -> tuple[bool, int, str, str, str]:
    index = -1 if each.index is None else each.index
    return each.index is None, index, each.namespace, each.pod or each.uid, each.container


def _text(text: str | None) -> Cell:
    return Cell(tables.printable(text)) if text else Cell(UNKNOWN, Tone.FAINT)


def _number(number: int | None) -> Cell:
    return Cell(UNKNOWN, Tone.FAINT) if number is None else Cell(str(number))


def _mib(amount_bytes: int | None) -> Cell:
    # Rounded up: what is there is shown.
    return _number(None if amount_bytes is None else -(-amount_bytes // MIB))


def _percent(percent: float | None) -> Cell:
    return Cell(UNKNOWN, Tone.FAINT) if percent is None else Cell(f"{percent:.0f}%")


def _health(card: reporting.CardReport) -> Cell:
    return Cell("healthy", Tone.GOOD) if card.healthy else Cell("sick", Tone.BAD)


def _bar(part: float | None) -> Cell:
    if part is None:
        return Cell(UNKNOWN, Tone.FAINT)
    return Cell(f"{100 * part:.0f}%", _tone(part), part)


def _tone(part: float) -> Tone:
    if part >= 0.9:
        return Tone.BAD
    return Tone.WARNING if part >= 0.6 else Tone.GOOD


def _used(each: reporting.ContainerReport) -> Cell:
    cell = _mib(each.used_bytes)
    if not each.used_bytes or not each.memory_mib:
        return cell
    return Cell(cell.text, _tone(each.used_bytes / MIB / each.memory_mib))


def _count(number: int | None) -> Cell:
    return Cell(str(number), Tone.BAD) if number else _number(number)


def _waited(rate: reporting.Rate) -> Cell:
    cell = _percent(rate.throttled_percent)
    return Cell(cell.text, Tone.WARNING) if rate.throttled_percent else cell


def _asked_mib(each: reporting.ContainerReport) -> str:
    return str(each.memory_mib) if each.memory_mib else "all"


def _asked(each: reporting.ContainerReport) -> str:
    texts: dict[str, str] = {
        limits.Mode.NONE: "all",
        limits.Mode.FIXED: f"{each.compute_percent}%",
        limits.Mode.BURST: f"{each.compute_percent}%-{each.ceiling_percent}%",
    }
    text = texts.get(each.mode, "best effort")
    return f"{text}, paused" if each.paused else text
