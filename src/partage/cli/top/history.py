"""History: how busy the cards were while ``partage top`` was looking, as one more column.

Kept in memory and forgotten at the end. It begins with the first look.
"""

from __future__ import annotations

import collections

import msgspec

from partage.cli.top import grid, pages

_COLUMN = "COMPUTE"
_HEADER = "LATELY"
_FIRST = ("CARD", "MEMORY", _COLUMN, _HEADER)
_LOOKS = 16


class History:
    """What was seen of each card."""

    def __init__(self) -> None:
        self._seen: dict[pages.Key, collections.deque[float | None]] = {}

    def add(self, page: pages.Page) -> None:
        """Remember a page; cards that are gone are forgotten."""
        column = page.cards.header.index(_COLUMN)
        for line in page.cards.lines:
            seen = self._seen.setdefault(line.key, collections.deque(maxlen=_LOOKS))
            seen.append(line.cells[column].part)
        there = {line.key for line in page.cards.lines}
        self._seen = {key: seen for key, seen in self._seen.items() if key in there}

    def shown(self, page: pages.Page) -> pages.Page:
        """The page with its bars, and the past, where a small terminal has them too."""
        header = (*page.cards.header, _HEADER)
        first = [header.index(name) for name in _FIRST]
        order = [*first, *(i for i in range(len(header)) if i not in first)]
        lines = (self._line(line, order) for line in page.cards.lines)
        cards = pages.Block(tuple(header[i] for i in order), tuple(lines))
        return msgspec.structs.replace(page, cards=cards)

    def _line(self, line: pages.Line, order: list[int]) -> pages.Line:
        trend = tuple(self._seen.get(line.key, ()))
        cells = (*line.cells, grid.Cell("", grid.Tone.FAINT, trend=trend))
        return msgspec.structs.replace(line, cells=tuple(cells[i] for i in order))
