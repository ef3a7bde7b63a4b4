"""Roles: the programs of ``partage demo``, and what each asks for.

All of it follows from the free memory of one card, in quarters: four are 16 GiB on the simulated
cards, so that the sizes are those of the README. Three programs share that card; then there is no
room for a fourth until one of them ends, and none for a fifth until that one is gone. If there is a
second card that is empty, a program asks for all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from partage.core import errors
from partage.local.view import views

_GIB = 1024
_SMALLEST_QUARTER_MIB = 1024  # a context alone may take half of that


class Role(msgspec.Struct, frozen=True):
    """One program."""

    name: str
    options: tuple[str, ...]  # of `partage run`
    memory_mib: int  # that these ask for

    @property
    def script(self) -> str:
        """Its file."""
        return f"{self.name}.py"

    @property
    def arguments(self) -> tuple[str, ...]:
        """After ``partage run``, up to the program."""
        return ("--name", self.name, *self.options)


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """All programs, by their parts in the story."""

    greedy: Role  # asks past its share
    ending: Role  # ends by itself
    other: Role
    whole: Role | None  # has a card of its own, where there is one to have
    waiting: Role  # until the ending one has ended; is killed then
    next: Role  # waits until that one is gone

    @property
    def first(self) -> tuple[Role, ...]:
        """Those with room on the cards, in the order in which they start."""
        shares = (self.greedy, self.ending, self.other)
        return (*shares, self.whole) if self.whole else shares

    @property
    def last(self) -> tuple[Role, ...]:
        """Those who run at the end."""
        return (*(role for role in self.first if role is not self.ending), self.next)


def cast(view: views.View) -> Cast:
    """The programs for this machine, as it is before the first one starts."""
    healthy = [card for card in view.cards if card.healthy]
    if not healthy:
        raise errors.DeviceError(
            "no-card", "no card of this machine can be used", instead="see `partage doctor`"
        )
    shared = min(healthy, key=lambda card: card.free_mib)
    taken = {shared.uuid, *(process.uuid for process in view.foreign)}
    whole = next((card for card in healthy if card.uuid not in taken), None)
    return _cast(shared, whole, pinned=not _found_alone(view))


def _found_alone(view: views.View) -> bool:
    """Whether all programs get the right card without naming it: one card, or two alike."""
    kinds = {(card.memory_mib, card.healthy) for card in view.cards}
    count = len(view.cards)
    return count == 1 or (count == 2 and len(kinds) == 1 and not view.foreign)


def _cast(shared: views.CardView, whole: views.CardView | None, *, pinned: bool) -> Cast:
    quarter_mib = _quarter_mib(shared)
    percent = max(1, 100 * quarter_mib // shared.memory_mib)
    units = max(1, quarter_mib * 3 // 4 // _GIB)
    card_option = ("--card", str(shared.index)) if pinned else ()
    quarter, half = amount(quarter_mib), amount(2 * quarter_mib)
    return Cast(
        greedy=Role("train", ("--memory", quarter, "--compute", "30%", *card_option), quarter_mib),
        ending=Role(
            "sweep", ("--memory", f"{percent}%", *card_option), shared.memory_mib * percent // 100
        ),
        other=Role(
            "notebook", ("--limits", f"aliyun.com/gpu-mem={units}", *card_option), units * _GIB
        ),
        whole=None if whole is None else _whole(whole, pinned=pinned),
        waiting=Role(
            "serve", ("--memory", half, "--compute", "30%:80%", *card_option), 2 * quarter_mib
        ),
        next=Role("late", ("--memory", half, *card_option), 2 * quarter_mib),
    )


def _whole(card: views.CardView, *, pinned: bool) -> Role:
    card_option = ("--card", str(card.index)) if pinned else ()
    return Role("bench", ("--exclusive", *card_option), card.memory_mib)


def _quarter_mib(card: views.CardView) -> int:
    quarter_mib = card.free_mib // 4
    if quarter_mib < _SMALLEST_QUARTER_MIB:
        raise errors.DeviceError(
            "no-room",
            f"card {card.index} has {card.free_mib} MiB free, and the demo needs "
            f"{4 * _SMALLEST_QUARTER_MIB} MiB",
            instead="end programs on it, or run `partage --simulate 2x16GiB demo`",
        )
    return quarter_mib


def amount(memory_mib: int) -> str:
    """As people write it: ``4GiB``, ``3750MiB``."""
    return f"{memory_mib}MiB" if memory_mib % _GIB else f"{memory_mib // _GIB}GiB"


def described(cards: Sequence[views.CardView]) -> str:
    """The cards in one line."""
    return ", ".join(
        f"card {card.index} {card.model or 'N/A'} with {amount(card.memory_mib)}" for card in cards
    )
