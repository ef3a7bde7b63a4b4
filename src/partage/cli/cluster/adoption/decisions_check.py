"""Whether what an extender says of every card is what the nodes and pods of the cluster say."""

from __future__ import annotations

import msgspec

from partage.scheduler.verbs import gpushare_inspect

_SHOWN = 3
_Used = dict[tuple[str, int], tuple[int, int]]  # total and used, by node and card


def disagreement(answer: bytes, expected: bytes) -> str:
    """How two answers to gpushare's ``inspect`` differ; empty if they say the same of each card."""
    try:
        said = _used(answer)
    except msgspec.MsgspecError as error:
        return f"its answer cannot be read: {error}"
    computed = _used(expected)
    differing = sorted(
        card for card in said.keys() | computed.keys() if _differs(card, said, computed)
    )
    texts = [
        f"card {index} of {node}: {_shown(said.get((node, index)))}, and by nodes and pods "
        f"{_shown(computed.get((node, index)))}"
        for node, index in differing[:_SHOWN]
    ]
    return f"it says of {'; '.join(texts)}" if texts else ""


def _differs(card: tuple[str, int], said: _Used, computed: _Used) -> bool:
    return said.get(card) != computed.get(card)


def _used(answer: bytes) -> _Used:
    inspected = msgspec.json.decode(answer, type=gpushare_inspect.Inspected)
    return {
        (node.name, card.id): (card.total_gpu, card.used_gpu)
        for node in inspected.nodes
        for card in node.devs
    }


def _shown(amount: tuple[int, int] | None) -> str:
    return "nothing" if amount is None else f"{amount[1]} of {amount[0]} used"
