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
from partage.local import entries

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
    asked = demand(msgspec.structs.replace(wishes, chosen=()), ())
    return any(each.demand.exclusive is demands.Exclusive.NO for each in asked.containers)


def demand(wishes: Wishes, known: Sequence[cards.Card]) -> demands.PodDemand:
    """What is asked for; indexes are those of the cards that are known."""
    if wishes.limits:
        return _in_other_words(wishes, known)
    restrictions = _restrictions(wishes, known)
    count = _count(wishes, len(restrictions["uuids"]))
    if wishes.memory is None and wishes.compute is None and not wishes.exclusive:
        raise errors.InputError(
            "nothing is asked for", instead="add --memory 4GiB, --compute 30%, or --exclusive"
        )
    if wishes.exclusive:
        _refuse_beside("--exclusive", wishes.memory, wishes.compute)
        asked = demands.Demand(cards=count, exclusive=demands.Exclusive.CARD, **restrictions)
    else:
        shares = {} if wishes.memory is None else memory(wishes.memory)
        shares |= {} if wishes.compute is None else compute(wishes.compute)
        asked = demands.Demand(cards=count, **shares, **restrictions)
    return demands.PodDemand(
        containers=(demands.ContainerDemand(entries.CONTAINER, asked),),
        dialect=DIALECT,
        nodes_by=wishes.policy or "",
        cards_by=wishes.policy or "",
    )


def warnings(wishes: Wishes) -> tuple[str, ...]:
    """What one should know of a request that can be used: our own words do what they say."""
    if not wishes.limits:
        return ()
    from partage.local import translating

    return translating.warnings(wishes.limits)


def memory(text: str) -> dict[str, Any]:
    """``4GiB``, or ``25%`` of the card it lands on."""
    amounts.check_total("--memory", text, "4GiB")
    if not text.rstrip().endswith("%"):
        return {"memory_mib": amounts.memory_mib("--memory", text)}
    match = _PERCENT.fullmatch(text.strip())
    if match is None or not 1 <= int(match[1]) <= cards.FULL_PERCENT:
        raise errors.InputError(
            f"--memory: {quantities.shown(text)} is no part of a card",
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
        f"--compute: {quantities.shown(text)} is no share of a card's time",
        instead="write whole percent, 1% to 100%, or with a ceiling 30%:80%",
    )


def _count(wishes: Wishes, chosen: int) -> int:
    text = wishes.cards
    if text is None:
        return max(1, chosen)
    if text == ALL:
        return demands.ALL_CARDS
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= _MOST_CARDS:
        raise errors.InputError(
            f"--cards: {text!r} is no number of cards", instead=f"write 1 to {_MOST_CARDS}, or all"
        )
    if chosen and int(text) > chosen:
        raise errors.InputError(
            f"--cards: {text} of the {chosen} that {wishes.chosen_by} names",
            instead="name more of them, or ask for fewer",
        )
    return int(text)


def _restrictions(wishes: Wishes, known: Sequence[cards.Card]) -> dict[str, Any]:
    return {
        "models": tuple(_model(text) for text in wishes.models),
        "uuids": tuple(
            dict.fromkeys(_uuid(wishes.chosen_by, text, known) for text in wishes.chosen)
        ),
    }


def _model(text: str) -> str:
    """A part of the name will do: ``A100`` is ``NVIDIA A100-SXM4-80GB``."""
    if not text.strip() or not text.isprintable():
        raise errors.InputError(
            f"--model: {text!r} is no name of a model", instead="`partage ps` shows them"
        )
    return text if any(sign in text for sign in "*?[") else f"*{text}*"


def _uuid(named_by: str, text: str, known: Sequence[cards.Card]) -> str:
    by_index = {str(card.index): card.uuid for card in known}
    starts = [card.uuid for card in known if card.uuid.lower().startswith(text.lower())]
    if text in by_index:
        return by_index[text]
    if len(starts) == 1 and text.lower().startswith(("gpu-", "mig-")):
        return starts[0]
    shown = ", ".join(f"{card.index} ({card.uuid})" for card in known) or "none"
    raise errors.InputError(
        f"{named_by}: there is no card {text!r}", instead=f"this machine has {shown}"
    )


def _refuse_beside(option: str, memory: str | None, compute: str | None) -> None:
    for name, text in (("--memory", memory), ("--compute", compute)):
        if text is not None:
            raise errors.InputError(
                f"{option} is the whole card, and {name} {text} a part", instead="write one of them"
            )


def _in_other_words(wishes: Wishes, known: Sequence[cards.Card]) -> demands.PodDemand:
    from partage.local import translating

    for name, text in (
        ("--memory", wishes.memory),
        ("--compute", wishes.compute),
        ("--cards", wishes.cards),
        ("--exclusive", wishes.exclusive or None),
    ):
        if text is not None:
            raise errors.InputError(
                f"{name} beside --limits says the same in other words", instead="write one of them"
            )
    asked = translating.demand(wishes.limits)
    restrictions = {k: v for k, v in _restrictions(wishes, known).items() if v}
    containers = tuple(
        msgspec.structs.replace(c, demand=msgspec.structs.replace(c.demand, **restrictions))
        for c in asked.containers
    )
    policy = wishes.policy or asked.cards_by
    return msgspec.structs.replace(
        asked, containers=containers, nodes_by=wishes.policy or asked.nodes_by, cards_by=policy
    )
