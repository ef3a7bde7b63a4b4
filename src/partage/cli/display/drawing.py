"""Drawn pages: in colours with bars for a terminal, in plain columns for a pipe.

The same cells either way; rich is imported only for a terminal. A line is never wrapped here:
the caller decides what happens to a line that is too long. A terminal that does not speak UTF-8
gets bars of ASCII characters, and question marks for what it cannot display.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from partage.cli.display import pages, table_cells, tables

if TYPE_CHECKING:
    from rich import text

_BAR = 10  # characters
_GAP = 2
_STYLES = {
    table_cells.Tone.PLAIN: "",
    table_cells.Tone.FAINT: "dim",
    table_cells.Tone.GOOD: "green",
    table_cells.Tone.WARNING: "yellow",
    table_cells.Tone.BAD: "red",
}


class Pen(msgspec.Struct, frozen=True):
    """What a terminal can display."""

    encoding: str

    @property
    def unicode(self) -> bool:
        """Whether it has more than ASCII for bars."""
        return self.encoding.lower().startswith("utf")

    def shown(self, written: str) -> str:
        """A text without what the terminal cannot show."""
        if self.unicode:
            return written
        return written.encode(self.encoding, "replace").decode(self.encoding)

    def arrow(self, *, down: bool) -> str:
        """Beside the column that tenants are sorted by."""
        up_down = "▲▼" if self.unicode else "^v"
        return up_down[down]

    def bar(self, part: float) -> str:
        """As full as the part of a whole."""
        full, empty = "█░" if self.unicode else "#-"
        length = round(_BAR * _whole(part))
        return full * length + empty * (_BAR - length)

    def trend(self, parts: tuple[float | None, ...]) -> str:
        """One character for each sample; a blank where the value is not known."""
        steps = "▁▂▃▄▅▆▇█" if self.unicode else "_.-=+*%#"
        top = len(steps) - 1
        return "".join(" " if part is None else steps[round(top * _whole(part))] for part in parts)


def plain(page: pages.Page) -> str:
    """Columns and nothing else; empty if there is nothing to show."""
    head = [_headed(page.node, page.about)] if page.about else []
    blocks = (
        tables.aligned(
            [block.header, *([cell.text for cell in line.cells] for line in block.lines)]
        )
        for block in page.blocks
    )
    return "\n\n".join([*head, *blocks])


def heading(page: pages.Page, pen: Pen, more: str = "") -> text.Text:
    """The line above everything."""
    from rich import text

    return text.Text(pen.shown(_headed(page.node, page.about, more)), style="bold")


def table(block: pages.Block, pen: Pen, *, marks: dict[int, str] | None = None) -> list[text.Text]:
    """The header and the lines of a block; ``marks`` stand beside the names of columns."""
    names = [f"{name}{(marks or {}).get(i, '')}" for i, name in enumerate(block.header)]
    rows = [[_worded(cell, pen) for cell in line.cells] for line in block.lines]
    widths = [max(map(width, column)) for column in zip(names, *rows, strict=True)]
    styles = [[_STYLES[cell.tone] for cell in line.cells] for line in block.lines]
    lines = [_line(row, styled, widths) for row, styled in zip(rows, styles, strict=True)]
    return [_line(names, ["bold"] * len(names), widths), *lines]


def width(word: str) -> int:
    """In columns of a terminal: some characters take two."""
    from rich import cells

    return cells.cell_len(word)


def _headed(*parts: str) -> str:
    return "  ".join(tables.printable(part) for part in parts if part)


def _line(words: list[str], styles: list[str], widths: list[int]) -> text.Text:
    """In columns; the last one is not padded."""
    from rich import text

    line = text.Text(no_wrap=True)
    last = len(words) - 1
    for i, (word, style, room) in enumerate(zip(words, styles, widths, strict=True)):
        line.append(word, style)
        line.append(" " * (0 if i == last else room + _GAP - width(word)))
    return line


def _worded(cell: table_cells.Cell, pen: Pen) -> str:
    if cell.trend:
        return pen.trend(cell.trend)
    if cell.part is None:
        return pen.shown(cell.text)
    return f"{pen.bar(cell.part)} {cell.text:>4}"


def _whole(part: float) -> float:
    return min(max(part, 0.0), 1.0)
