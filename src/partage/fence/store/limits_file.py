"""The limits file: limits as its words, and back.

The order of the stores matters, because the tenant's processes read meanwhile: a launch looks at
its card only if the *gate* is not 0, and a mode is never seen without its share.
"""

from __future__ import annotations

from typing import TypeVar

from partage.core import errors
from partage.fence.store import layout, limits, shared_files

Name = TypeVar("Name")

_PLACES = layout.FIRST_SEATS + 1
_MODES = {
    limits.Mode.NONE: layout.MODE_NONE,
    limits.Mode.FIXED: layout.MODE_FIXED,
    limits.Mode.BURST: layout.MODE_BURST,
    limits.Mode.BEST_EFFORT: layout.MODE_BEST_EFFORT,
}
_ON_FAILURE = {
    limits.OnFailure.CLOSED: layout.ON_FAILURE_CLOSED,
    limits.OnFailure.OPEN: layout.ON_FAILURE_OPEN,
}


def new(requested: limits.Limits, seats: tuple[int, ...]) -> layout.Limits:
    """The content of a new tenant's limits file."""
    raw = shared_files.blank(layout.Limits)
    raw.cards = len(requested.cards)
    for index, card in enumerate(requested.cards):
        raw.card[index].uuid[:] = card.raw_uuid
        raw.card[index].seat = seats[index]
    store(raw, requested)
    return raw


def store(raw: layout.Limits, requested: limits.Limits) -> None:
    """Change what the limits say while others read them; cards and seats stay."""
    raw.on_failure = _ON_FAILURE[requested.on_failure]
    if requested.gated:
        raw.gate = 1
    for index, card in enumerate(requested.cards):
        _store_card(raw.card[index], card)
    if not requested.gated:
        raw.gate = 0


def value(raw: layout.Limits, uuids: tuple[str, ...]) -> limits.Limits:
    """What a limits file says about these cards.

    A ValueError if it says what could not have been written here.
    """
    if raw.cards != len(uuids):
        raise ValueError(f"it has {raw.cards} cards but {len(uuids)} links to seats")
    if not uuids:
        raise ValueError("it has no cards")
    cards = tuple(_card(raw.card[i], uuid) for i, uuid in enumerate(uuids))
    return limits.Limits(cards, _named(_ON_FAILURE, raw.on_failure))


def seats(raw: layout.Limits) -> tuple[int, ...]:
    """The seats at its cards."""
    return tuple(raw.card[i].seat for i in range(min(raw.cards, layout.CARDS)))


def _store_card(raw: layout.LimitsCard, card: limits.CardLimits) -> None:
    raw.memory_bytes, raw.context_bytes = card.memory_bytes, card.context_bytes
    if card.mode is limits.Mode.NONE:
        raw.mode = layout.MODE_NONE
    raw.share, raw.ceiling = card.share_millionths, card.ceiling_millionths
    raw.yields_to = sum(1 << number for number in card.yields_to)
    raw.mode = _MODES[card.mode]
    raw.paused = int(card.paused)


def _card(raw: layout.LimitsCard, uuid: str) -> limits.CardLimits:
    try:
        card = limits.CardLimits(
            uuid=uuid,
            memory_bytes=raw.memory_bytes,
            context_bytes=raw.context_bytes,
            mode=_named(_MODES, raw.mode),
            share_millionths=raw.share,
            ceiling_millionths=raw.ceiling,
            paused=bool(raw.paused),
            yields_to=frozenset(n for n in range(_PLACES) if raw.yields_to >> n & 1),
        )
    except errors.InputError as error:
        raise ValueError(error.what) from error
    if card.raw_uuid != bytes(raw.uuid):
        raise ValueError(f"it names {limits.uuid_of(raw.uuid)}, but the link names {uuid}")
    return card


def _named(names: dict[Name, int], code: int) -> Name:
    for name, number in names.items():
        if number == code:
            return name
    raise ValueError(f"{code} is not one of {sorted(names.values())}")
