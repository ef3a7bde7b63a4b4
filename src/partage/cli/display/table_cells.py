"""Cells of the tables of ``partage top`` and ``partage ps``: a text, and how serious it is.

A value that is not known is ``N/A``. Texts of others are printed without characters that would move
the cursor. :mod:`partage.cli.display.drawing` draws cells on a screen or into a pipe.
"""

from __future__ import annotations

import enum
import math

import msgspec

from partage.cli.display import tables
from partage.core.quantities import MIB
from partage.fence.store import limits
from partage.fence.watch import escapes

UNKNOWN = "N/A"
_UNKNOWN_PART = "-"  # the same, as a part of a cell
_ALL = "all"  # what is not limited
_GIB_MIB = 1024


class Tone(enum.Enum):
    """How serious a cell is."""

    PLAIN = "plain"
    FAINT = "faint"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class Cell(msgspec.Struct, frozen=True):
    """A text with a tone, and what else is drawn of it on a terminal."""

    text: str
    tone: Tone = Tone.PLAIN
    part: float | None = None  # what a bar beside it shows
    rank: float | str | None = None  # what it is sorted by; None: not known
    trend: tuple[float | None, ...] = ()  # parts of the past, the newest last


Row = tuple[Cell, ...]


def text(written: str | None) -> Cell:
    """A name, or another text of others."""
    if not written:
        return Cell(UNKNOWN, Tone.FAINT)
    plain = tables.printable(written)
    return Cell(plain, rank=plain.casefold())


def nothing() -> Cell:
    """What does not exist here; that is known."""
    return Cell(_UNKNOWN_PART, Tone.FAINT)


def fence(level: str | None) -> Cell:
    """The fence in force; a user should see first that a program is outside of it."""
    return bad(level) if level == escapes.Kind.OUTSIDE else text(level)


def bad(written: str) -> Cell:
    """A problem."""
    return Cell(tables.printable(written), Tone.BAD)


def number(amount: int | None) -> Cell:
    return Cell(UNKNOWN, Tone.FAINT) if amount is None else Cell(str(amount), rank=amount)


def count(amount: int | None) -> Cell:
    """How often something happened that should not."""
    return Cell(str(amount), Tone.BAD, rank=amount) if amount else number(amount)


def granted(amount_mib: int) -> Cell:
    """Memory that was asked for; none means no limit, and ranks above all amounts."""
    return number(amount_mib) if amount_mib else Cell(_ALL, rank=math.inf)


def mib(amount_bytes: int | None) -> Cell:
    """Rounded up, so that a small use is not shown as none."""
    return number(None if amount_bytes is None else -(-amount_bytes // MIB))


def rounded(cell: Cell) -> Cell:
    """The same amount of MiB in a few characters, with its unit."""
    if cell.rank in (None, math.inf):
        return cell
    amount_mib = int(cell.rank)
    if abs(amount_mib) >= _GIB_MIB:
        return msgspec.structs.replace(cell, text=f"{_gib(amount_mib)}Gi")
    return msgspec.structs.replace(cell, text=f"{amount_mib}Mi" if amount_mib else "0")


def filled(used_mib: int | None, memory_mib: int) -> Cell:
    """How much of a memory is in use; on a terminal with a bar."""
    cell = bar(used_mib, memory_mib)
    used_text = _UNKNOWN_PART if used_mib is None else _gib(used_mib)
    return msgspec.structs.replace(cell, text=f"{used_text}/{_gib(memory_mib)}Gi")


def used(amount_bytes: int | None, granted_mib: int) -> Cell:
    """Memory; the less is left of what was granted, the more serious."""
    cell = mib(amount_bytes)
    if not amount_bytes or not granted_mib:
        return cell
    return Cell(cell.text, _tone(amount_bytes / MIB / granted_mib), rank=cell.rank)


def percent(amount: float | None) -> Cell:
    return Cell(UNKNOWN, Tone.FAINT) if amount is None else Cell(f"{amount:.0f}%", rank=amount)


def waited(throttled_percent: float | None) -> Cell:
    """The time that launches were held back."""
    cell = percent(throttled_percent)
    return Cell(cell.text, Tone.WARNING, rank=cell.rank) if throttled_percent else cell


def bar(amount: int | None, of: int) -> Cell:
    """How much of something; on a terminal with a bar."""
    if amount is None or of <= 0:
        return Cell(UNKNOWN, Tone.FAINT)
    part = amount / of
    return Cell(f"{100 * part:.0f}%", _tone(part), part, rank=part)


def health(healthy: bool, cordoned: bool = False) -> Cell:
    """Whether a card can be used; that it is not healthy is said first."""
    if not healthy:
        return Cell("unhealthy", Tone.BAD)
    return Cell("cordoned", Tone.WARNING) if cordoned else Cell("healthy", Tone.GOOD)


def asked(mode: str, compute_percent: int, ceiling_percent: int | None) -> Cell:
    """What was promised of a card's time."""
    texts: dict[str, tuple[str, int]] = {
        limits.Mode.NONE: (_ALL, 100),
        limits.Mode.FIXED: (f"{compute_percent}%", compute_percent),
        limits.Mode.BURST: (f"{compute_percent}%-{ceiling_percent}%", compute_percent),
    }
    written, rank = texts.get(mode, ("best effort", 0))
    return Cell(written, rank=rank)


def got(compute_percent: float | None, promised: Cell) -> Cell:
    """What a tenant got of a card's time, and what was promised (:func:`asked`)."""
    percent_text = _UNKNOWN_PART if compute_percent is None else f"{compute_percent:.0f}"
    if promised.text.endswith("%"):
        return Cell(f"{percent_text}/{promised.text}", rank=compute_percent)
    written = promised.text if compute_percent is None else f"{percent_text}%/{promised.text}"
    return Cell(written, rank=compute_percent)


def age(seconds: float) -> Cell:
    """How long."""
    return Cell(tables.age(seconds), rank=seconds)


def _gib(amount_mib: int) -> str:
    """With one decimal, unless it is 0."""
    return f"{amount_mib / _GIB_MIB:.1f}".removesuffix(".0")


def _tone(part: float) -> Tone:
    if part >= 0.9:
        return Tone.BAD
    return Tone.WARNING if part >= 0.6 else Tone.GOOD
