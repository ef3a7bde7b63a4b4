"""Limits: what a tenant may use of each of its cards, as values.

A tenant is what a fence is put around: one container of a Grant, or one ``partage run``. This
module knows which limits a fence can have and derives them from a Grant; it does no I/O. A limit
that contradicts itself (a ceiling below the share) cannot be constructed.

Shares are counted in millionths of a card's time, as in the shared files, so that what is read
back can be compared with what was set.
"""

from __future__ import annotations

import enum
import re
import uuid as uuids
from collections.abc import Iterable, Mapping

import msgspec

from partage.core import demands, errors, grants
from partage.core.quantities import MIB
from partage.fence.store import layout

NO_QUOTA = (1 << 64) - 1  # as much as the card has
MILLIONTHS_PER_PERCENT = layout.WHOLE // 100

_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Mode(enum.StrEnum):
    """How a card's time is limited."""

    NONE = "none"  # not at all, and not counted
    FIXED = "fixed"  # never above the share
    BURST = "burst"  # the share is guaranteed, idle time usable up to the ceiling
    BEST_EFFORT = "best-effort"  # not at all, but counted


class OnFailure(enum.StrEnum):
    """What the hook does when it cannot do its work, for example when its region is damaged."""

    CLOSED = "closed"  # CUDA fails
    OPEN = "open"  # CUDA works, unlimited


class CardLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant may use of one card."""

    uuid: str  # GPU-8-4-4-4-12 or MIG-8-4-4-4-12, in hexadecimal digits
    memory_bytes: int = NO_QUOTA  # of all its processes together
    context_bytes: int = 0  # what one context costs on this card; 0: nobody measured it
    mode: Mode = Mode.NONE
    share_millionths: int = 0
    ceiling_millionths: int = 0
    paused: bool = False
    yields_to: frozenset[int] = frozenset()  # places in `yields_to` of the file: who goes first

    def __post_init__(self) -> None:
        problem, instead = _contradiction(self)
        if problem:
            raise errors.InputError(f"card {self.uuid}: {problem}", instead=instead)

    @property
    def raw_uuid(self) -> bytes:
        """Its 16 bytes, as CUDA and NVML give them."""
        return uuids.UUID(self.uuid[4:]).bytes

    @property
    def gated(self) -> bool:
        """Whether a launch has to look at the limits at all."""
        return self.paused or self.mode is not Mode.NONE or self.yields

    @property
    def yields(self) -> bool:
        """Whether launches wait while others have work."""
        return bool(self.yields_to)

    @property
    def time(self) -> Time:
        """How its time is limited."""
        return Time(
            mode=self.mode,
            share_millionths=self.share_millionths,
            ceiling_millionths=self.ceiling_millionths,
            yields_to=self.yields_to,
        )


class Time(msgspec.Struct, frozen=True, kw_only=True):
    """How the time of one card is limited for a tenant; the rest of its limits is not concerned."""

    mode: Mode = Mode.NONE
    share_millionths: int = 0
    ceiling_millionths: int = 0
    yields_to: frozenset[int] = frozenset()


class Limits(msgspec.Struct, frozen=True):
    """What a tenant may use of all its cards, in the order in which it sees them."""

    cards: tuple[CardLimits, ...]
    on_failure: OnFailure = OnFailure.CLOSED

    def __post_init__(self) -> None:
        if not 1 <= len(self.cards) <= layout.CARDS:
            raise errors.InputError(
                f"a tenant can have 1 to {layout.CARDS} cards, not {len(self.cards)}",
                instead="give the tenant fewer cards",
            )
        if len({card.uuid for card in self.cards}) != len(self.cards):
            raise errors.InputError(
                "a card is listed twice", instead="add up what the tenant may use of that card"
            )

    @property
    def gated(self) -> bool:
        """Whether any of its cards is."""
        return any(card.gated for card in self.cards)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What to change about the limits of a card; what is None stays as it is."""

    memory_bytes: int | None = None
    compute_percent: int | None = None  # 0: its time is no longer limited
    ceiling_percent: int | None = None
    mode: Mode | None = None
    paused: bool | None = None


def granted(
    container: grants.ContainerGrant,
    *,
    context_bytes: Mapping[str, int] | None = None,
    on_failure: OnFailure = OnFailure.CLOSED,
) -> Limits:
    """The limits that a container's grant means; contexts' costs are given by uuid."""
    costs = context_bytes or {}
    by_card: dict[str, list[grants.Share]] = {}
    for share in container.shares:
        by_card.setdefault(share.uuid, []).append(share)
    cards = (
        _granted(container, uuid, shares, costs.get(uuid, 0)) for uuid, shares in by_card.items()
    )
    return Limits(tuple(cards), on_failure)


def changed(card: CardLimits, change: Change) -> CardLimits:
    """The limits of a card after a change; refuses one that contradicts itself."""
    _check_percent("compute", change.compute_percent)
    _check_percent("ceiling", change.ceiling_percent)
    mode = _changed_mode(card, change)
    share = _either(change.compute_percent, card.share_millionths)
    ceiling = _either(change.ceiling_percent, card.ceiling_millionths or layout.WHOLE)
    if change.compute_percent and mode in (Mode.NONE, Mode.BEST_EFFORT):
        raise errors.InputError(
            f"mode {mode} has no share", instead="leave compute out, or choose mode fixed or burst"
        )
    if change.ceiling_percent is not None and mode is not Mode.BURST:
        raise errors.InputError(
            f"mode {mode} has no ceiling", instead="leave the ceiling out, or choose mode burst"
        )
    return msgspec.structs.replace(
        card,
        memory_bytes=card.memory_bytes if change.memory_bytes is None else change.memory_bytes,
        mode=mode,
        share_millionths=0 if mode is Mode.NONE else share,
        ceiling_millionths=ceiling if mode is Mode.BURST else 0,
        paused=card.paused if change.paused is None else change.paused,
    )


def requested_time(
    percent: int, compute_mode: demands.ComputeMode, ceiling_percent: int = 0
) -> Time:
    """What a share of a card's time means that is to be held in this mode; no share is no limit."""
    mode = _MODES[compute_mode] if percent else Mode.NONE
    ceiling = max(ceiling_percent or 100, percent) * MILLIONTHS_PER_PERCENT
    return Time(
        mode=mode,
        share_millionths=percent * MILLIONTHS_PER_PERCENT,
        ceiling_millionths=ceiling if mode is Mode.BURST else 0,
    )


def timed(card: CardLimits, time: Time) -> CardLimits:
    """The limits of a card with its time limited so."""
    return msgspec.structs.replace(card, **msgspec.structs.asdict(time))


def place(seat: int) -> int:
    """The place of a seat in ``yields_to``; seats far behind share the last one."""
    return min(seat, layout.FIRST_SEATS)


def uuid_of(raw: Iterable[int], kind: str = "GPU") -> str:
    """The text of a uuid's 16 bytes."""
    return f"{kind}-{uuids.UUID(bytes=bytes(raw))}"


def _granted(
    container: grants.ContainerGrant, uuid: str, shares: list[grants.Share], context_bytes: int
) -> CardLimits:
    """Several shares of one card are one limit; a tenant with a card of its own has none."""
    if any(share.exclusive for share in shares):
        return CardLimits(uuid=uuid, context_bytes=context_bytes)
    memory_mib = sum(share.memory_mib for share in shares) if container.memory_enforced else 0
    card = CardLimits(
        uuid=uuid, memory_bytes=memory_mib * MIB or NO_QUOTA, context_bytes=context_bytes
    )
    percent = min(100, sum(share.compute_percent for share in shares))
    mode, ceiling_percent = container.compute_mode, container.compute_ceiling_percent
    return timed(card, requested_time(percent, mode, ceiling_percent))


_MODES = {
    demands.ComputeMode.BEST_EFFORT: Mode.BEST_EFFORT,
    demands.ComputeMode.FIXED: Mode.FIXED,
    demands.ComputeMode.BURST: Mode.BURST,
    demands.ComputeMode.NODE: Mode.BEST_EFFORT,  # a node whose administrator said nothing
}


def _changed_mode(card: CardLimits, change: Change) -> Mode:
    if change.mode is not None:
        return change.mode
    if change.compute_percent == 0:
        return Mode.NONE
    if change.ceiling_percent is not None:
        return Mode.BURST
    if change.compute_percent is not None and card.mode is Mode.NONE:
        return Mode.FIXED
    return card.mode


def _either(percent: int | None, millionths: int) -> int:
    return millionths if percent is None else percent * MILLIONTHS_PER_PERCENT


def _check_percent(what: str, percent: int | None) -> None:
    if percent is not None and not 0 <= percent <= 100:
        raise errors.InputError(
            f"{what}: {percent} is not a percentage of a card", instead="write 0 to 100"
        )


def _contradiction(card: CardLimits) -> tuple[str, str]:
    """What is wrong with the limits of a card, and what to write instead."""
    if not _UUID.fullmatch(card.uuid):
        return "this is not a valid uuid", "write the uuid as `nvidia-smi -L` shows it"
    if not 1 <= card.memory_bytes <= NO_QUOTA or not 0 <= card.context_bytes < NO_QUOTA:
        return f"{card.memory_bytes} bytes is not a valid quota", "write an amount such as 2GiB"
    share, ceiling = card.share_millionths, card.ceiling_millionths
    if not 0 <= share <= layout.WHOLE or not 0 <= ceiling <= layout.WHOLE:
        return "a share is between 0 and 100 % of a card", "write 0 to 100"
    if card.mode in (Mode.FIXED, Mode.BURST) and not share:
        return f"mode {card.mode} needs a share", "add compute, for example 30"
    if card.mode is Mode.NONE and share:
        return "mode none does not limit the share", "choose mode fixed or burst"
    if card.mode is Mode.BURST and ceiling < share:
        return f"the ceiling of {_percent(ceiling)} is below the share of {_percent(share)}", (
            "raise the ceiling or lower the share"
        )
    if not all(0 <= number <= layout.FIRST_SEATS for number in card.yields_to):
        return "there are no such seats", f"name 0 to {layout.FIRST_SEATS}"
    if card.mode is not Mode.BURST and ceiling:
        return f"mode {card.mode} has no ceiling", "choose mode burst"
    return "", ""


def _percent(millionths: int) -> str:
    return f"{millionths / MILLIONTHS_PER_PERCENT:g} %"
