"""History: how busy the cards were while ``partage top`` ran, as one more column.

It is kept in memory only, and begins with the first sample.
"""

from __future__ import annotations

import collections

import msgspec

from partage.cli.display import pages, table_cells

_COLUMN = "COMPUTE"
_HEADER = "LATELY"
_FIRST = ("CARD", "MEMORY", _COLUMN, _HEADER)
_SAMPLES = 16


class History:
    """The last samples of each card."""

    def __init__(self) -> None:
        self._seen: dict[pages.Key, collections.deque[float | None]] = {}

    def add(self, page: pages.Page) -> None:
        """Remember a page; cards that are gone are forgotten."""
        column = page.cards.header.index(_COLUMN)
        for line in page.cards.lines:
            seen = self._seen.setdefault(line.key, collections.deque(maxlen=_SAMPLES))
            seen.append(line.cells[column].part)
        present = {line.key for line in page.cards.lines}
        self._seen = {key: seen for key, seen in self._seen.items() if key in present}

    def shown(self, page: pages.Page) -> pages.Page:
        """The page with its bars and the history first, where a small terminal shows them, too."""
        header = (*page.cards.header, _HEADER)
        first = [header.index(name) for name in _FIRST]
        order = [*first, *(i for i in range(len(header)) if i not in first)]
        lines = (self._line(line, order) for line in page.cards.lines)
        cards = pages.Block(tuple(header[i] for i in order), tuple(lines))
        return msgspec.structs.replace(page, cards=cards)

    def _line(self, line: pages.Line, order: list[int]) -> pages.Line:
        trend = tuple(self._seen.get(line.key, ()))
        cells = (*line.cells, table_cells.Cell("", table_cells.Tone.FAINT, trend=trend))
        return msgspec.structs.replace(line, cells=tuple(cells[i] for i in order))
