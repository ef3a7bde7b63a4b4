"""Keys: what a keyboard sends, whole or in pieces, is the same keys."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.cli.commands.top import keyboard

SENT = [
    *((b"\x1b[A", "up"), (b"\x1b[B", "down"), (b"\x1b[C", "right"), (b"\x1b[D", "left")),
    *((b"\x1bOA", "up"), (b"\x1bOD", "left"), (b"\x1bOH", "home"), (b"\x1bOF", "end")),
    *((b"\x1b[5~", "page up"), (b"\x1b[6~", "page down")),
    *((b"\x1b[H", "home"), (b"\x1b[1~", "home"), (b"\x1b[7~", "home")),
    *((b"\x1b[F", "end"), (b"\x1b[4~", "end"), (b"\x1b[8~", "end")),
    *((b"\x1b[1;5A", "up"), (b"\x1b[6;2~", "page down")),  # with control, with shift
    *((b"\r", "enter"), (b"\n", "enter"), (b"\x7f", "backspace"), (b"\x08", "backspace")),
    *((b"\x03", "interrupt"), (b"\x04", "end of input"), (b"\x01", "ctrl-a")),
    *((b"[", "["), (b"]", "]")),
    *((b"q", "q"), (b"K", "K"), (b"/", "/"), ("é".encode(), "é"), ("漢".encode(), "漢")),
    ("😀".encode(), "😀"),
]
UNKNOWN = [
    *(b"\x1b[11~", b"\x1b[[A", b"\x1b[[K", b"\x1bOP", b"\x1b[200~", b"\x1b[K", b"\x1b[I"),
    *(b"\x1b[?1;2c", b"\x1b[T", b"\x00", b"\x02", b"\x1a", b"\xff", b"\x80"),
]


@pytest.mark.parametrize(("sent", "key"), SENT)
def test_each_key_is_known(sent: bytes, key: str) -> None:
    """By whichever bytes terminals send it."""
    assert keyboard.decoded(sent, final=False) == ([key], b"")


@pytest.mark.parametrize("sent", UNKNOWN)
def test_what_is_unknown_is_nothing(sent: bytes) -> None:
    """Above all no letter: F1 of the console ends with A, others with K or T."""
    assert keyboard.decoded(sent, final=False) == ([], b"")


@pytest.mark.parametrize("sent", [b"\x1b", b"\x1b[", b"\x1b[1;", b"\x1bO", b"\x1b[[", b"\xe6\xbc"])
def test_a_beginning_waits_for_its_end(sent: bytes) -> None:
    """Until somebody says that there is none."""
    assert keyboard.decoded(b"j" + sent, final=False) == (["j"], sent)
    assert keyboard.decoded(sent, final=True)[1] == b""


def test_escape_is_a_key_if_nothing_follows() -> None:
    """And if what follows is no sequence."""
    assert keyboard.decoded(b"\x1b", final=True) == (["escape"], b"")
    assert keyboard.decoded(b"\x1by", final=False) == (["escape", "y"], b"")
    assert keyboard.decoded(b"\x1b\x1b[A", final=False) == (["escape", "up"], b"")


def test_a_sequence_without_end_is_not_waited_for() -> None:
    """Nobody can make it keep more and more bytes."""
    assert len(keyboard.decoded(b"\x1b[" + b"1" * 1000, final=False)[1]) == 0


@given(st.lists(st.sampled_from(SENT)), st.lists(st.integers(0, 200), max_size=20))
def test_pieces_are_the_same_keys(pressed: list[tuple[bytes, str]], cuts: list[int]) -> None:
    """However the bytes arrive."""
    sent = b"".join(sequence for sequence, _ in pressed)
    at = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})

    decoded_keys, left = [], b""
    for start, stop in itertools.pairwise(at):
        keys, left = keyboard.decoded(left + sent[start:stop], final=False)
        decoded_keys += keys

    assert (decoded_keys, left) == ([key for _, key in pressed], b"")


@given(st.binary(max_size=100))
def test_whatever_arrives_is_taken(sent: bytes) -> None:
    """Noise on a line is no error, and nothing of it stays."""
    keys, left = keyboard.decoded(sent, final=True)

    assert left == b""
    assert all(keys)
