"""What is told of cards that have no room is true of each of them."""

from __future__ import annotations

import pytest

from partage.core import refusals
from partage.core.refusals import Code
from partage.local.queue import wait_reasons


def _refusal(*cards: tuple[Code, int]) -> refusals.Refusal:
    """Cards that lack something, each with what it has free; 8192 are asked for."""
    shortages = tuple(
        refusals.Shortage(
            container="",
            uuid=f"GPU-{index}",
            index=index,
            code=code,
            asked=8192 if code is Code.MEMORY else 0,
            free=free,
            short=8192 - free if code is Code.MEMORY else 0,
        )
        for index, (code, free) in enumerate(cards)
    )
    return refusals.refusal(Code.MEMORY, "lab-1", "", shortages)


ONE = "card 0 has 6144 of 8192 MiB free"
TWO = f"{ONE}, card 1 has 6144 of 8192 MiB free"


@pytest.mark.parametrize(
    ("cards", "says"),
    [
        ([(Code.MEMORY, 6144)], ONE),
        ([(Code.MEMORY, 6144)] * 2, TWO),
        ([(Code.MEMORY, 6144)] * 8, f"{TWO}, and 6 more like these"),
        ([(Code.MEMORY, 6144)] * 2 + [(Code.MEMORY, 100)], f"{TWO}, and 1 more has less"),
        (
            [(Code.MEMORY, 100), (Code.MEMORY, 6144), (Code.MEMORY, 200), (Code.MEMORY, 6144)],
            f"{TWO.replace('card 1', 'card 3').replace('card 0', 'card 1')}, and 2 more have less",
        ),
        (
            [(Code.MEMORY, 6144)] * 3 + [(Code.MEMORY, 100)],
            f"{TWO}, and 2 more have no room either",
        ),
        (
            [(Code.MEMORY, 6144)] * 2 + [(Code.CARD_UNHEALTHY, 0)],
            f"{TWO}, and 1 more has no room either",
        ),
        (
            [(Code.CARD_NOT_EMPTY, 0)] * 8,
            "card 0 is in use, card 1 is in use, and 6 more like these",
        ),
    ],
)
def test_of_many_cards_what_holds_for_all_is_told(cards: list[tuple[Code, int]], says: str) -> None:
    """The nearest two by themselves, and of the rest nothing that is not so."""
    assert wait_reasons.refused(_refusal(*cards)) == says
