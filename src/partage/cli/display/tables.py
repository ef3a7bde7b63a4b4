"""Tables: text in columns, aligned the way Go's text/tabwriter does it.

kubectl and its plugins print through tabwriter, and people parse what they print, so this follows
it to the blank: a cell ends with a tab; a column is as wide as its widest cell plus the padding,
over the lines that follow each other and have that cell; what comes after the last tab of a line is
in no column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_PADDING = 2
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
# Below how many seconds, in which unit, and with which smaller one beside it; as kubectl does.
_AGES = (
    (2 * _MINUTE_S, 1, "s", 0, ""),
    (10 * _MINUTE_S, _MINUTE_S, "m", 1, "s"),
    (3 * _HOUR_S, _MINUTE_S, "m", 0, ""),
    (8 * _HOUR_S, _HOUR_S, "h", _MINUTE_S, "m"),
    (2 * _DAY_S, _HOUR_S, "h", 0, ""),
    (8 * _DAY_S, _DAY_S, "d", _HOUR_S, "h"),
)


def aligned(rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells in columns, kubectl's way: the last column is not padded."""
    return tabbed("\n".join("\t".join(row) for row in rows))


def tabbed(text: str) -> str:
    """Replace the tabs of a text by blanks so that columns line up."""
    lines = [line.split("\t") for line in text.split("\n")]
    widths = [[0] * (len(cells) - 1) for cells in lines]
    for column in range(max(len(cells) for cells in lines) - 1):
        for block in _blocks(lines, column):
            width = max(len(lines[i][column]) for i in block) + _PADDING
            for i in block:
                widths[i][column] = width
    return "\n".join(
        "".join(cell.ljust(width) for cell, width in zip(cells, [*room, 0], strict=True))
        for cells, room in zip(lines, widths, strict=True)
    )


def printable(cell: str) -> str:
    """Others wrote it: what would move the cursor or the columns is not passed on."""
    return cell if cell.isprintable() else "".join(c if c.isprintable() else "?" for c in cell)


def age(seconds: float) -> str:
    """How long, as kubectl writes it: ``90s``, ``5m10s``, ``47h``."""
    whole = max(0, int(seconds))
    for below, unit, name, rest, rest_name in _AGES:
        if whole < below:
            less = f"{whole % unit // rest}{rest_name}" if rest and whole % unit // rest else ""
            return f"{whole // unit}{name}{less}"
    return f"{whole // _DAY_S}d"


def _blocks(lines: list[list[str]], column: int) -> list[list[int]]:
    """The runs of lines that have a tab-terminated cell in this column."""
    blocks: list[list[int]] = [[]]
    for i, cells in enumerate(lines):
        if len(cells) - 1 > column:
            blocks[-1].append(i)
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]
