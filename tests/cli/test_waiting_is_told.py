"""What a waiting user is told fits on their terminal, and what is left out is marked."""

from __future__ import annotations

import os

import pytest

from partage.cli.display import waiting_lines

REASON = "  card 0 has 6144 of 12288 MiB free, card 1 has 4096 of 12288 MiB free"


def test_what_is_too_long_goes_on_in_the_next_line() -> None:
    """Nothing is lost, and nothing reaches the last column."""
    rows = waiting_lines.fitted([REASON, "  Ctrl-C leaves the queue"], os.terminal_size((40, 24)))

    assert rows == [
        "  card 0 has 6144 of 12288 MiB free,",
        "    card 1 has 4096 of 12288 MiB free",
        "  Ctrl-C leaves the queue",
    ]


def test_what_is_below_the_last_line_is_marked() -> None:
    """More lines than the terminal has could not be written over."""
    rows = waiting_lines.fitted([REASON, REASON], os.terminal_size((40, 4)))

    assert rows == [
        "  card 0 has 6144 of 12288 MiB free,",
        "    card 1 has 4096 of 12288 MiB free",
        "  card 0 has 6144 of 12288 MiB free,...",
    ]


@pytest.mark.parametrize(
    ("name", "room", "shown"),
    [
        ("train", 40, "train"),
        ("train", 0, "train"),
        ("sweep-of-learning-rates-17", 26, "sweep-of-learning-rates-17"),
        ("sweep-of-learning-rates-17", 20, "sweep-of-...rates-17"),
        ("sweep-of-learning-rates-17", 0, "sweep-o...tes-17"),
    ],
)
def test_a_name_loses_its_middle(name: str, room: int, shown: str) -> None:
    """Where names differ is mostly at their ends; a part is shown however narrow it is."""
    assert waiting_lines.shortened(name, room) == shown
