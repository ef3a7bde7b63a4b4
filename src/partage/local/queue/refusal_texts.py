"""Refusals in words for one machine, whose users start programs and know nothing of nodes."""

from __future__ import annotations

import msgspec

from partage.core import cards, demands, refusals
from partage.core.placement import plans
from partage.core.refusals import Code

_CARDS_SHOWN = "`partage ps` shows the cards"
_REMEDIES = {
    Code.TOO_MANY_CARDS: f"ask for fewer cards; {_CARDS_SHOWN}",
    Code.CARD_TOO_SMALL: f"ask for less memory; {_CARDS_SHOWN}",
    Code.TOO_MUCH_TOGETHER: f"ask for less; {_CARDS_SHOWN}",
}


def on_this_machine(
    refusal: refusals.Refusal, demand: demands.PodDemand, node: cards.Node
) -> refusals.Refusal:
    """The same refusal; what can never fit is explained without the name of a node."""
    text = _never(refusal, demand, node) if refusal.never else ""
    return msgspec.structs.replace(refusal, text=text) if text else refusal


def remedy(refusal: refusals.Refusal) -> str:
    """What to ask for instead of what can never fit."""
    return _REMEDIES.get(refusal.code, _CARDS_SHOWN)


def _never(refusal: refusals.Refusal, demand: demands.PodDemand, node: cards.Node) -> str:
    part = plans.Plan(demand).parts[0]
    qualify = [card for card in node.cards if part.accepts is None or part.accepts(card)]
    if refusal.code is Code.NO_CARDS:
        return "this machine has no cards"
    if refusal.code is Code.NO_SUCH_MODEL:
        return _no_such_model(demand.containers[0].demand.models, node)
    if refusal.code is Code.NO_SUCH_CARD:
        return "it names cards that this machine does not have"
    if refusal.code is Code.TOO_MANY_CARDS:
        number = part.cards or len(node.cards)
        restricted = "" if len(qualify) == len(node.cards) else " that qualify"
        return f"it asks for {number} cards; this machine has {len(qualify)}{restricted}"
    if refusal.code is Code.CARD_TOO_SMALL:
        return _too_small(refusal.shortages[0], part, qualify)
    return ""


def _no_such_model(patterns: tuple[str, ...], node: cards.Node) -> str:
    asks = " or ".join(pattern.strip("*") for pattern in patterns) or "others"
    has = ", ".join(sorted({card.model or "unknown" for card in node.cards}))
    return f"it asks for cards of model {asks}; this machine has {has}"


def _too_small(largest: refusals.Shortage, part: plans.Part, qualify: list[cards.Card]) -> str:
    """``largest`` is the largest of the cards that are too small."""
    amount = f"{largest.asked} MiB"
    if part.cards == 1:
        asks = f"it asks for {amount} on one card"
    else:
        asks = f"it asks for {amount} on each of {part.cards or 'all'} cards"
    large = sum(card.memory_mib >= part.memory_mib(card.memory_mib) for card in qualify)
    if large:
        return f"{asks}; only {large} of this machine {'has' if large == 1 else 'have'} that much"
    return f"{asks}; the largest card of this machine has {largest.free} MiB"
