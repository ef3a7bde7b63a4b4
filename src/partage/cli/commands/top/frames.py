"""The frame: what of a page fits on a screen, line by line.

A heading, a bottom line, and between them as many lines as the terminal has. What does not fit is
scrolled: far enough to show the selection, and no further. When the header of a table has left the
screen, it takes the first line, so that columns keep their names. Tables that are
wider than the screen are moved sideways, all alike, as far as there is something to see.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from partage.cli.commands.top import key_actions
from partage.cli.display import drawing, pages, tables

if TYPE_CHECKING:
    from rich import text

_AROUND = 2  # lines: the heading and the bottom
_USUAL = "h help  q quit"
_WIDER = "  [ ] move the table"


class Size(msgspec.Struct, frozen=True):
    """Of a terminal, in characters."""

    width: int
    height: int

    @property
    def body(self) -> int:
        """Lines between the heading and the bottom."""
        return max(self.height - _AROUND, 1)


class Frame(msgspec.Struct, frozen=True):
    """All lines of a screen, and how far it is scrolled, down and sideways."""

    lines: list[text.Text]
    offset: int
    aside: int


class _Body(msgspec.Struct):
    """Lines; for each of them the header above it, and where the selection is."""

    lines: list[text.Text] = []
    headers: list[int] = []
    first: int | None = None  # the line that can be selected first
    last: int | None = None
    selected: int | None = None


def frame(
    page: pages.Page,
    state: key_actions.State,
    size: Size,
    pen: drawing.Pen,
    *,
    offset: int = 0,
    trouble: str = "",
) -> Frame:
    """A shown page; ``offset`` is how far the last frame was scrolled."""
    body = _help() if state.mode is key_actions.Mode.HELPING else _body(page, state, pen)
    at = scrolled(offset, size.body, len(body.lines), _needed(body), body.selected)
    beyond = max((line.cell_len for line in body.lines), default=0) - size.width
    aside = max(min(state.aside, beyond), 0)
    seen = body.lines[at : at + size.body]
    if at and size.body > 1:
        seen[0] = body.lines[body.headers[at]]
    room = [_blank() for _ in range(size.body - len(seen))]
    moved = (_moved(line, aside) for line in seen)
    bottom = _bottom(state, pen, wider=beyond > 0)
    lines = [_heading(page, pen, trouble), *moved, *room, bottom]
    for line in lines:
        line.truncate(size.width, overflow="crop")
    return Frame(lines[: size.height], at, aside)


def scrolled(
    offset: int, height: int, total: int, lines: tuple[int, int], selected: int | None
) -> int:
    """The first line to show: ``lines`` as far as they fit, and the selected one in any case.

    The first line on a scrolled screen is a header, so the selected one has to be below it.
    """
    first, last = lines
    at = min(max(offset, last - height + 1), first)
    if selected is not None:
        header = 1 if height > 1 else 0
        at = min(max(at, selected - height + 1), max(selected - header, 0))
    return max(0, min(at, total - height))


def _moved(line: text.Text, aside: int) -> text.Text:
    """Without its first columns; where half a character would be left there is a blank."""
    if not aside:
        return line
    at, gone = 0, 0
    while gone < aside and at < len(line.plain):
        gone += drawing.width(line.plain[at])
        at += 1
    moved = line[at:]
    moved.pad_left(max(gone - aside, 0))
    return moved


def _body(page: pages.Page, state: key_actions.State, pen: drawing.Pen) -> _Body:
    body = _Body()
    selectable = {line.key for line in page.selectable}
    for block in page.blocks:
        marks = _marks(state, pen) if block is page.tenants else {}
        if body.lines:
            body.headers.append(len(body.lines))
            body.lines.append(_blank())
        header = len(body.lines)
        for line, drawn in zip(
            (None, *block.lines), drawing.table(block, pen, marks=marks), strict=True
        ):
            if line and line.key in selectable:
                _note(body, line, drawn, state)
            body.headers.append(header)
            body.lines.append(drawn)
    if page.nothing:
        _say(body, page.nothing)
    return body


def _note(body: _Body, line: pages.Line, drawn: text.Text, state: key_actions.State) -> None:
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


def _needed(body: _Body) -> tuple[int, int]:
    """The selected line; at either end of what can be selected, the lines beyond it, too."""
    at = body.selected
    if at is None:
        return 0, 0
    return 0 if at == body.first else at, len(body.lines) - 1 if at == body.last else at


def _help() -> _Body:
    from rich import text

    wide = max(len(keys) for keys, _ in key_actions.HELP) + 2
    lines = [text.Text(f"{keys.ljust(wide)}{what}") for keys, what in key_actions.HELP]
    return _Body(lines, list(range(len(lines))))


def _marks(state: key_actions.State, pen: drawing.Pen) -> dict[int, str]:
    if state.column == pages.AS_IT_COMES:
        return {}
    return {state.column: pen.arrow(down=state.descending)}


def _heading(page: pages.Page, pen: drawing.Pen, trouble: str) -> text.Text:
    moment = time.strftime("%H:%M:%S", time.localtime(page.taken_ns / 1e9))
    return drawing.heading(page, pen, f"{moment} (old: {trouble})" if trouble else moment)


def _bottom(state: key_actions.State, pen: drawing.Pen, *, wider: bool) -> text.Text:
    from rich import text

    if state.said:
        return text.Text(pen.shown(tables.printable(state.said)), style="bold yellow")
    if state.mode is key_actions.Mode.FILTERING:
        return text.Text(pen.shown(f"/{state.filter}_"), style="bold")
    chosen = f"  only /{state.filter}" if state.filter else ""
    return text.Text(pen.shown(f"{_USUAL}{_WIDER if wider else ''}{chosen}"), style="dim")


def _blank() -> text.Text:
    from rich import text

    return text.Text("")
