"""Requests: what a person asks for on one machine, in words of options, as a Demand.

The options are Partage's own words; ``--limits`` takes the words of every dialect, as they stand in
the limits of a container. Both end as the same neutral Demand, so what is decided from it is
decided as in a cluster. Texts are refused with what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from partage.core import amounts, cards, demands, errors, quantities
from partage.local.requests import card_access
from partage.local.state import entries

ALL = "all"
DIALECT = "partage"  # these words are our own

_PERCENT = re.compile(r"(\d{1,3})\s*%", re.ASCII)
_COMPUTE = re.compile(r"(\d{1,3})\s*%?(?::\s*(\d{1,3})\s*%?)?", re.ASCII)
_NUMBER = re.compile(r"\d{1,3}", re.ASCII)
_MOST_CARDS = 64


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """Options as they were written; None and empty are what was not."""

    cards: str | None = None
    memory: str | None = None
    compute: str | None = None
    exclusive: bool = False
    models: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()  # cards by uuid or index
    chosen_by: str = "--card"  # or the variable that named them
    policy: str | None = None
    limits: tuple[str, ...] = ()


def check(wishes: Wishes) -> None:
    """Refuse what cannot be used whatever cards there are, before anything is made or opened."""
    demand(msgspec.structs.replace(wishes, chosen=()), ())


def limited(wishes: Wishes) -> bool:
    """Whether something is asked for that has to be kept: a whole card has nobody else on it."""
    pod_demand = demand(msgspec.structs.replace(wishes, chosen=()), ())
    return any(
        container.demand.exclusive is demands.Exclusive.NO for container in pod_demand.containers
    )


def demand(
    wishes: Wishes,
    machine_cards: Sequence[cards.Card],
    access: card_access.Access = card_access.EVERY,
) -> demands.PodDemand:
    """What is asked for; indexes are those of the machine's cards."""
    if wishes.limits:
        return _in_other_words(wishes, machine_cards, access)
    named = _named(wishes, machine_cards, access)
    restrictions = _restrictions(wishes, named or _allowed(machine_cards, access))
    count = _count(wishes, len(named), len(restrictions["uuids"]), access)
    if wishes.memory is None and wishes.compute is None and not wishes.exclusive:
        raise _no_share(wishes)
    if wishes.exclusive:
        _refuse_beside("--exclusive", wishes.memory, wishes.compute)
        share = demands.Demand(cards=count, exclusive=demands.Exclusive.CARD, **restrictions)
    else:
        shares = {} if wishes.memory is None else memory(wishes.memory)
        shares |= {} if wishes.compute is None else compute(wishes.compute)
        share = demands.Demand(cards=count, **shares, **restrictions)
    return demands.PodDemand(
        containers=(demands.ContainerDemand(entries.CONTAINER, share),),
        dialect=DIALECT,
        nodes_by=wishes.policy or "",
        cards_by=wishes.policy or "",
    )


def warnings(wishes: Wishes) -> tuple[str, ...]:
    """What one should know of a request that can be used: our own words do what they say."""
    if not wishes.limits:
        return ()
    from partage.local.requests import foreign_requests

    return foreign_requests.warnings(wishes.limits)


def memory(text: str) -> dict[str, Any]:
    """``4GiB``, or ``25%`` of the card it lands on."""
    amounts.check_total("--memory", text, "4GiB")
    if not text.rstrip().endswith("%"):
        return {"memory_mib": _amount_mib(text)}
    match = _PERCENT.fullmatch(text.strip())
    if match is None or not 1 <= int(match[1]) <= cards.FULL_PERCENT:
        raise errors.InputError(
            f"--memory: {quantities.shown(text)} is not a valid part of a card",
            instead="write whole percent, 1% to 100%, or an amount such as 4GiB",
        )
    return {"memory_percent": int(match[1])}


def compute(text: str) -> dict[str, Any]:
    """``30%``, or with a ceiling ``30%:80%``."""
    amounts.check_total("--compute", text, "30%")
    match = _COMPUTE.fullmatch(text.strip())
    if match is None:
        raise _wrong_compute(text)
    share, ceiling = int(match[1]), int(match[2]) if match[2] else 0
    if not 1 <= share <= cards.FULL_PERCENT or (match[2] and not share <= ceiling <= 100):
        raise _wrong_compute(text)
    mode = demands.ComputeMode.BURST if ceiling else demands.ComputeMode.FIXED
    return {"compute_percent": share, "compute_ceiling_percent": ceiling, "compute_mode": mode}


def _wrong_compute(text: str) -> errors.InputError:
    return errors.InputError(
        f"--compute: {quantities.shown(text)} is not a valid share of a card's time",
        instead="write whole percent, 1% to 100%, or with a ceiling 30%:80%",
    )


def _amount_mib(text: str) -> int:
    amount_mib = amounts.memory_mib("--memory", text)
    if amount_mib > entries.MOST_MIB:
        raise errors.InputError(
            f"--memory: {quantities.shown(text)} is more than any card has",
            instead="`partage ps` shows how much the cards have",
        )
    return amount_mib


def _no_share(wishes: Wishes) -> errors.InputError:
    """The error for options that say which cards, or how many, and not how much of each."""
    instead = "add --memory 4GiB, --compute 30%, or --exclusive"
    chosen = (
        ("--cards", wishes.cards is not None),
        ("--model", bool(wishes.models)),
        (wishes.chosen_by, bool(wishes.chosen)),
    )
    options = [option for option, written in chosen if written]
    if not options:
        return errors.InputError("no share of a card is asked for", instead=instead)
    return errors.InputError(
        f"{' and '.join(options)} alone: how much of each card is not said", instead=instead
    )


def _count(wishes: Wishes, chosen: int, allowed: int, access: card_access.Access) -> int:
    text = wishes.cards
    if text is None:
        return max(1, chosen)
    if text == ALL:
        return demands.ALL_CARDS if access.uuids is None else allowed
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= _MOST_CARDS:
        raise errors.InputError(
            f"--cards: {text!r} is not a valid number of cards",
            instead=f"write 1 to {_MOST_CARDS}, or all",
        )
    if chosen and int(text) > chosen:
        raise errors.InputError(
            f"--cards: {text} cards are asked for, and {wishes.chosen_by} names {chosen}",
            instead="name more cards, or ask for fewer",
        )
    return int(text)


def _named(
    wishes: Wishes, machine_cards: Sequence[cards.Card], access: card_access.Access
) -> tuple[str, ...]:
    """The cards that the user named; each must be one that they may have."""
    uuids = [_uuid(wishes.chosen_by, text, machine_cards) for text in wishes.chosen]
    refused = [
        card for card in machine_cards if card.uuid in uuids and not access.allows(card.uuid)
    ]
    if refused:
        raise errors.InputError(
            f"{wishes.chosen_by}: {access.note(refused)}", instead=access.instead
        )
    return tuple(dict.fromkeys(uuids))


def _allowed(machine_cards: Sequence[cards.Card], access: card_access.Access) -> tuple[str, ...]:
    """The cards that the user may have, if they are not all."""
    uuids = access.allowed(machine_cards)
    if access.uuids is not None and not uuids:
        raise errors.InputError(
            access.note(machine_cards) or "this machine has no cards", instead=access.instead
        )
    return uuids


def _restrictions(wishes: Wishes, uuids: tuple[str, ...]) -> dict[str, Any]:
    return {"models": tuple(_model(text) for text in wishes.models), "uuids": uuids}


def _model(text: str) -> str:
    """A part of the name will do: ``A100`` is ``NVIDIA A100-SXM4-80GB``."""
    if not text.strip() or not text.isprintable():
        raise errors.InputError(
            f"--model: {text!r} is not the name of a model", instead="`partage ps` shows them"
        )
    return text if any(sign in text for sign in "*?[") else f"*{text}*"


def _uuid(named_by: str, text: str, machine_cards: Sequence[cards.Card]) -> str:
    by_index = {str(card.index): card.uuid for card in machine_cards}
    starts = [card.uuid for card in machine_cards if card.uuid.lower().startswith(text.lower())]
    if text in by_index:
        return by_index[text]
    if len(starts) == 1 and text.lower().startswith(("gpu-", "mig-")):
        return starts[0]
    shown = ", ".join(f"{card.index} ({card.uuid})" for card in machine_cards) or "none"
    raise errors.InputError(
        f"{named_by}: this machine has no card {text!r}", instead=f"it has {shown}"
    )


def _refuse_beside(option: str, memory: str | None, compute: str | None) -> None:
    for name, text in (("--memory", memory), ("--compute", compute)):
        if text is not None:
            raise errors.InputError(
                f"{option} asks for whole cards, and {name} {text} for a part",
                instead="use one of them",
            )


def _in_other_words(
    wishes: Wishes, machine_cards: Sequence[cards.Card], access: card_access.Access
) -> demands.PodDemand:
    from partage.local.requests import foreign_requests

    for name, text in (
        ("--memory", wishes.memory),
        ("--compute", wishes.compute),
        ("--cards", wishes.cards),
        ("--exclusive", wishes.exclusive or None),
    ):
        if text is not None:
            raise errors.InputError(
                f"{name} and --limits say the same in different words", instead="use one of them"
            )
    pod_demand = foreign_requests.demand(wishes.limits)
    uuids = _named(wishes, machine_cards, access) or _allowed(machine_cards, access)
    restrictions = {k: v for k, v in _restrictions(wishes, uuids).items() if v}
    containers = tuple(
        msgspec.structs.replace(c, demand=msgspec.structs.replace(c.demand, **restrictions))
        for c in pod_demand.containers
    )
    policy = wishes.policy or pod_demand.cards_by
    return msgspec.structs.replace(
        pod_demand,
        containers=containers,
        nodes_by=wishes.policy or pod_demand.nodes_by,
        cards_by=policy,
    )
