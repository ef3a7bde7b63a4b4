"""What a key does to the screen of ``partage top``.

A pure function of what the user sees (:class:`State`) and of the page. An effect outside of the
screen is only named (:class:`Act`); a signal needs two keys, and the second is never anything but
``y``.

A tenant that ends while it is selected takes the selection with it. It does not slide to a
neighbour, which nobody chose; the next arrow goes on from the same row.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Callable

import msgspec

from partage.cli.commands.top import keyboard
from partage.cli.display import pages

SIGNALS = {"T": signal.SIGTERM, "K": signal.SIGKILL, "I": signal.SIGINT}
HELP = (
    ("up, down, j, k", "select another tenant"),
    ("page up, page down, home, end", "the same, faster"),
    ("left, right, comma, dot", "sort by another column"),
    ("r", "reverse the order"),
    ("[, ], ctrl-a", "move a wide table: left, right, to its beginning"),
    ("/", "filter by name or user; enter keeps the filter"),
    ("T, K, I", "send SIGTERM, SIGKILL or SIGINT; asks first"),
    ("escape", "cancel: the question, the filter, the selection"),
    ("h, ?", "this page; any key leaves it"),
    ("q, ctrl-c", "quit"),
)

_ENDS = (keyboard.INTERRUPT, keyboard.END_OF_INPUT)
_LONGEST_FILTER = 60  # characters
_SORTS = {keyboard.LEFT: -1, ",": -1, keyboard.RIGHT: 1, ".": 1}


_ASIDE = 8  # columns of the terminal that a table is moved by one key
_ASIDES: dict[str, Callable[[int], int]] = {
    "[": lambda aside: max(aside - _ASIDE, 0),
    "]": lambda aside: aside + _ASIDE,
    keyboard.CTRL_A: lambda _aside: 0,
}


class Mode(enum.Enum):
    """What keys mean."""

    BROWSING = "browsing"
    FILTERING = "filtering"
    ASKING = "asking"
    HELPING = "helping"


class Act(enum.Enum):
    """What has to be done, beyond drawing the screen."""

    NOTHING = "nothing"
    QUIT = "quit"
    ASK = "ask"  # whether the signal of the state shall be sent
    SEND = "send"
    DROP = "drop"  # do not send it


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the user sees of a page, and how."""

    mode: Mode = Mode.BROWSING
    selected: pages.Key | None = None
    row: int = -1  # where the selection is, or was, among those that can be selected
    column: int = pages.AS_IT_COMES
    descending: bool = False
    filter: str = ""  # what names and users have to contain
    aside: int = 0  # columns of the terminal that are left of what is seen
    signal: signal.Signals = signal.SIGTERM
    said: str = ""  # at the bottom, until the next key


def shown(state: State, page: pages.Page) -> pages.Page:
    """The page as the user wants it."""
    kept = pages.filtered(page, state.filter)
    return pages.ordered(kept, state.column, descending=state.descending)


def settled(state: State, page: pages.Page) -> State:
    """The state on a new page: the selected line may have moved, or ended."""
    keys = [line.key for line in page.selectable]
    if state.selected in keys:
        return msgspec.structs.replace(state, row=keys.index(state.selected))
    return msgspec.structs.replace(state, selected=None, row=min(state.row, len(keys) - 1))


def selected(state: State, page: pages.Page) -> pages.Line | None:
    """The line that the user selected."""
    return next((line for line in page.selectable if line.key == state.selected), None)


def pressed(state: State, key: str, page: pages.Page, leap: int) -> tuple[State, Act]:
    """What a key does on a shown page; ``leap`` is how many lines a page up or down goes."""
    if key in _ENDS:
        return state, Act.QUIT
    state = msgspec.structs.replace(state, said="")
    if state.mode is Mode.ASKING:
        sure = key in ("y", "Y")
        return _with(state, mode=Mode.BROWSING), Act.SEND if sure else Act.DROP
    if state.mode is Mode.HELPING:
        return _with(state, mode=Mode.BROWSING), Act.NOTHING
    if state.mode is Mode.FILTERING:
        return _typed(state, key), Act.NOTHING
    return _browsed(state, key, page, leap)


def asked(state: State, question: str) -> State:
    """The next key is the answer."""
    return _with(state, mode=Mode.ASKING, said=question)


def _browsed(state: State, key: str, page: pages.Page, leap: int) -> tuple[State, Act]:
    if key in ("q", "Q"):
        return state, Act.QUIT
    if key in SIGNALS:
        return _with(state, signal=SIGNALS[key]), Act.ASK
    if key in _SORTS:
        return _sorted(state, _SORTS[key], page), Act.NOTHING
    if key == "r":
        return _with(state, descending=not state.descending), Act.NOTHING
    if key == "/":
        return _with(state, mode=Mode.FILTERING), Act.NOTHING
    if key in ("h", "?"):
        return _with(state, mode=Mode.HELPING), Act.NOTHING
    if key == keyboard.ESCAPE:
        return _cancelled(state), Act.NOTHING
    if key in _ASIDES:
        return _with(state, aside=_ASIDES[key](state.aside)), Act.NOTHING
    return _moved(state, key, page, leap), Act.NOTHING


def _typed(state: State, key: str) -> State:
    if key == keyboard.ESCAPE:
        return _with(state, mode=Mode.BROWSING, filter="")
    if key == keyboard.ENTER:
        return _with(state, mode=Mode.BROWSING)
    if key == keyboard.BACKSPACE:
        return _with(state, filter=state.filter[:-1])
    if len(key) == 1:
        return _with(state, filter=(state.filter + key)[:_LONGEST_FILTER])
    return state


def _sorted(state: State, step: int, page: pages.Page) -> State:
    """By the next column; the order of the page itself is one of the choices."""
    choices = len(page.tenants.header) + 1
    column = (state.column + 1 + step) % choices - 1
    descending = pages.largest_first(page, column)
    return _with(state, column=column, descending=descending)


def _cancelled(state: State) -> State:
    """The filter first, then the selection."""
    return _with(state, filter="") if state.filter else _with(state, selected=None)


def _moved(state: State, key: str, page: pages.Page, leap: int) -> State:
    lines = page.selectable
    # Without a selection the row is where it was: one back, so that down comes to it.
    row = state.row if state.selected or state.row < 0 else state.row - 1
    rows = {
        **dict.fromkeys((keyboard.DOWN, "j"), row + 1),
        **dict.fromkeys((keyboard.UP, "k"), row - 1 if state.selected else row),
        keyboard.PAGE_DOWN: row + leap,
        keyboard.PAGE_UP: row - leap,
        keyboard.HOME: 0,
        keyboard.END: len(lines) - 1,
    }
    if key not in rows or not lines:
        return state
    row = min(max(rows[key], 0), len(lines) - 1)
    return _with(state, row=row, selected=lines[row].key)


def _with(state: State, **changes: object) -> State:
    return msgspec.structs.replace(state, **changes)
