"""The frame: what of a page fits on a screen, line by line.

A heading, a bottom line, and between them as many lines as the terminal has. What does not fit is
scrolled: far enough that the selection is seen, and no further. When the header of a table has
left the screen it stands in for the first line, so that columns keep their names.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from partage.cli import tables, top_drawing, top_pages, top_steering

if TYPE_CHECKING:
    from rich import text

_AROUND = 2  # lines: the heading and the bottom
_USUAL = "h help  q quits"


class Size(msgspec.Struct, frozen=True):
    """Of a terminal, in characters."""

    width: int
    height: int

    @property
    def body(self) -> int:
        """Lines between the heading and the bottom."""
        return max(self.height - _AROUND, 1)


class Frame(msgspec.Struct, frozen=True):
    """All lines of a screen, and how far it is scrolled."""

    lines: list[text.Text]
    offset: int


class _Body(msgspec.Struct):
    """Lines; for each of them the header above it, and where the selection is."""

    lines: list[text.Text] = []
    headers: list[int] = []
    first: int | None = None  # the line that can be selected first
    last: int | None = None
    selected: int | None = None


def frame(
    page: top_pages.Page,
    state: top_steering.State,
    size: Size,
    pen: top_drawing.Pen,
    *,
    offset: int = 0,
    trouble: str = "",
) -> Frame:
    """A shown page; ``offset`` is how far the last frame was scrolled."""
    body = _help() if state.mode is top_steering.Mode.HELPING else _body(page, state, pen)
    at = scrolled(offset, size.body, len(body.lines), _wanted(body), body.selected)
    seen = body.lines[at : at + size.body]
    if at and size.body > 1:
        seen[0] = body.lines[body.headers[at]]
    room = [_blank() for _ in range(size.body - len(seen))]
    lines = [_heading(page, pen, trouble), *seen, *room, _bottom(state, pen)]
    for line in lines:
        line.truncate(size.width, overflow="crop")
    return Frame(lines[: size.height], at)


def scrolled(
    offset: int, height: int, total: int, wanted: tuple[int, int], selected: int | None
) -> int:
    """The first line to show: the wanted ones as far as they fit, the selected one in any case.

    The first line on a scrolled screen is a header, so the selected one has to be below it.
    """
    first, last = wanted
    at = min(max(offset, last - height + 1), first)
    if selected is not None:
        header = 1 if height > 1 else 0
        at = min(max(at, selected - height + 1), max(selected - header, 0))
    return max(0, min(at, total - height))


def _body(page: top_pages.Page, state: top_steering.State, pen: top_drawing.Pen) -> _Body:
    body = _Body()
    selectable = {line.key for line in page.selectable}
    for block in page.blocks:
        marks = _marks(state, pen) if block is page.tenants else {}
        if body.lines:
            body.headers.append(len(body.lines))
            body.lines.append(_blank())
        header = len(body.lines)
        for line, drawn in zip(
            (None, *block.lines), top_drawing.table(block, pen, marks=marks), strict=True
        ):
            if line and line.key in selectable:
                _note(body, line, drawn, state)
            body.headers.append(header)
            body.lines.append(drawn)
    if page.nothing:
        _say(body, page.nothing)
    return body


def _note(body: _Body, line: top_pages.Line, drawn: text.Text, state: top_steering.State) -> None:
    """Remember where a line is that can be selected."""
    body.last = len(body.lines)
    if body.first is None:
        body.first = body.last
    if line.key == state.selected:
        body.selected = body.last
        drawn.stylize("reverse")


def _say(body: _Body, sentence: str) -> None:
    from rich import text

    for line in (_blank(), text.Text(sentence)):
        body.headers.append(len(body.lines))
        body.lines.append(line)


def _wanted(body: _Body) -> tuple[int, int]:
    """At either end of what can be selected, what is beyond it too."""
    at = body.selected
    if at is None:
        return 0, 0
    return 0 if at == body.first else at, len(body.lines) - 1 if at == body.last else at


def _help() -> _Body:
    from rich import text

    wide = max(len(keys) for keys, _ in top_steering.HELP) + 2
    lines = [text.Text(f"{keys.ljust(wide)}{what}") for keys, what in top_steering.HELP]
    return _Body(lines, list(range(len(lines))))


def _marks(state: top_steering.State, pen: top_drawing.Pen) -> dict[int, str]:
    if state.column == top_pages.AS_IT_COMES:
        return {}
    return {state.column: pen.arrow(down=state.descending)}


def _heading(page: top_pages.Page, pen: top_drawing.Pen, trouble: str) -> text.Text:
    moment = time.strftime("%H:%M:%S", time.localtime(page.taken_ns / 1e9))
    return top_drawing.heading(page, pen, f"{moment} (old: {trouble})" if trouble else moment)


def _bottom(state: top_steering.State, pen: top_drawing.Pen) -> text.Text:
    from rich import text

    if state.said:
        return text.Text(pen.shown(tables.printable(state.said)), style="bold yellow")
    if state.mode is top_steering.Mode.FILTERING:
        return text.Text(pen.shown(f"/{state.wanted}_"), style="bold")
    chosen = f"  only /{state.wanted}" if state.wanted else ""
    return text.Text(pen.shown(f"{_USUAL}{chosen}"), style="dim")


def _blank() -> text.Text:
    from rich import text

    return text.Text("")
