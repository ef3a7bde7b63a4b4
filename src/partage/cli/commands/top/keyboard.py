r"""Keys: the bytes of a keyboard as names of keys.

A terminal sends an arrow as several bytes that begin like the key Escape, and they need not arrive
together. So what may be the beginning of something longer is left for later, until the caller says
that nothing more came (``final``). Unknown sequences are dropped as a whole: the letters in them
are not keys that somebody pressed.
"""

from __future__ import annotations

import re

UP, DOWN, LEFT, RIGHT = "up", "down", "left", "right"
PAGE_UP, PAGE_DOWN, HOME, END = "page up", "page down", "home", "end"
ENTER, ESCAPE, BACKSPACE = "enter", "escape", "backspace"
INTERRUPT = "interrupt"
END_OF_INPUT = "end of input"
CTRL_A = "ctrl-a"

_ESCAPE = 0x1B
_LONGEST = 32  # bytes of a sequence; what is longer was sent by no keyboard
# Parameters and intermediate bytes, then one that ends it. The console's F1 is ESC [ [ A.
_SEQUENCE = re.compile(rb"\x1b(?:\[\[.|\[([0-?]*)[ -/]*([@-Z\\-~])|O([0-?]*)([@-~]))", re.DOTALL)
_BEGINNING = re.compile(rb"\x1b(?:\[\[?|\[[0-?]*[ -/]*|O[0-?]*)?")
_BY_LETTER = {
    b"A": UP,
    b"B": DOWN,
    b"C": RIGHT,
    b"D": LEFT,
    b"H": HOME,
    b"F": END,
    b"M": ENTER,  # of the number pad
}
_BY_NUMBER = {
    b"1": HOME,
    b"7": HOME,
    b"4": END,
    b"8": END,
    b"5": PAGE_UP,
    b"6": PAGE_DOWN,
}
_CONTROL = {
    0x01: CTRL_A,
    0x03: INTERRUPT,
    0x04: END_OF_INPUT,
    0x08: BACKSPACE,
    0x7F: BACKSPACE,
    0x0A: ENTER,
    0x0D: ENTER,
}
_NOTHING = ""


def decoded(received: bytes, *, final: bool) -> tuple[list[str], bytes]:
    """The keys, and the bytes that are not complete yet; with ``final`` there are none."""
    keys: list[str] = []
    while received:
        key, length = _first(received, final=final)
        if not length:
            break
        if key is not _NOTHING:
            keys.append(key)
        received = received[length:]
    return keys, received


def _first(received: bytes, *, final: bool) -> tuple[str, int]:
    """The first key and its bytes; no bytes if more have to come."""
    if received[0] == _ESCAPE:
        return _escaped(received, final=final)
    if received[0] < 0x80:
        control = received[0] < 0x20 or received[0] == 0x7F
        return _CONTROL.get(received[0], _NOTHING) if control else chr(received[0]), 1
    return _character(received, final=final)


def _escaped(received: bytes, *, final: bool) -> tuple[str, int]:
    match = _SEQUENCE.match(received)
    if match:
        return _named(match), match.end()
    if not final and len(received) < _LONGEST and _BEGINNING.fullmatch(received):
        return _NOTHING, 0
    return ESCAPE, 1


def _named(match: re.Match[bytes]) -> str:
    """With shift or control it is the same key."""
    numbers, letter = match[1] or match[3] or b"", match[2] or match[4]
    if letter == b"~":
        return _BY_NUMBER.get(numbers.split(b";")[0], _NOTHING)
    return _BY_LETTER.get(letter, _NOTHING) if letter else _NOTHING


def _character(received: bytes, *, final: bool) -> tuple[str, int]:
    """One in UTF-8; a byte that is none is dropped."""
    lead = received[0]
    length = 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if lead < 0xF5 else 1
    try:
        text = received[:length].decode()
    except UnicodeDecodeError as error:
        waits = error.reason == "unexpected end of data" and len(received) < length
        return _NOTHING, 0 if waits and not final else 1
    return text if text.isprintable() else _NOTHING, length
