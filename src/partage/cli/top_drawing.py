"""Drawing ``partage top``: in colours with bars for a terminal, in plain columns for a pipe.

The same rows either way; rich is imported only for a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from partage.cli import tables, top_rows, top_sampling

if TYPE_CHECKING:
    from rich import console

_BAR = 10  # characters
_STYLES = {
    top_rows.Tone.PLAIN: "",
    top_rows.Tone.FAINT: "dim",
    top_rows.Tone.GOOD: "green",
    top_rows.Tone.WARNING: "yellow",
    top_rows.Tone.BAD: "red",
}

Block = tuple[Sequence[str], list[top_rows.Row]]


def plain(sample: top_sampling.Sample) -> str:
    """Columns and nothing else; empty if there is nothing to show."""
    return "\n\n".join(
        tables.aligned([header, *([cell.text for cell in row] for row in rows)])
        for header, rows in _blocks(sample)
    )


def drawn(sample: top_sampling.Sample, *, heading: str, unicode: bool) -> console.Group:
    """For a terminal."""
    from rich import console, text

    parts = [_table(block, unicode=unicode) for block in _blocks(sample)]
    return console.Group(text.Text(heading, style="bold", no_wrap=True), *parts)


def _blocks(sample: top_sampling.Sample) -> list[Block]:
    """Cards, then containers, then problems, each where there are any."""
    blocks: tuple[Block, ...] = (
        (top_rows.CARD, list(top_rows.cards(sample.report))),
        (top_rows.CONTAINER, list(top_rows.containers(sample))),
        (top_rows.PROBLEM, list(top_rows.problems(sample.report))),
    )
    return [(header, rows) for header, rows in blocks if rows]


def _table(block: Block, *, unicode: bool) -> console.RenderableType:
    from rich import padding, table, text

    header, rows = block
    drawing = table.Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        drawing.add_column(name, no_wrap=name != "PROBLEM", overflow="ellipsis")
    for row in rows:
        drawing.add_row(
            *(text.Text(_worded(cell, unicode), style=_STYLES[cell.tone]) for cell in row)
        )
    return padding.Padding(drawing, (1, 0, 0, 0))


def _worded(cell: top_rows.Cell, unicode: bool) -> str:
    if cell.part is None:
        return cell.text
    full, empty = "█░" if unicode else "#-"
    length = round(_BAR * min(max(cell.part, 0.0), 1.0))
    return f"{full * length}{empty * (_BAR - length)} {cell.text:>4}"
