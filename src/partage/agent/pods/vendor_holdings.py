"""Vendor holdings: which of our cards another plugin gave to which containers.

NVIDIA's plugin names devices by the uuids of cards, ours by numbers that mean nothing. So an ID in
the kubelet's record that is the uuid of a card was given by a vendor's plugin, whoever came first.
A card that it shares among several (``GPU-...::1``) is not told apart here: nobody has it alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from partage.core import cards
from partage.kubelet import checkpoint

CardsByContainer = Mapping[str, tuple[cards.Card, ...]]


def by_pod(
    holdings: Iterable[checkpoint.Holding],
    resources: Collection[str],
    node_cards: Iterable[cards.Card],
) -> Mapping[str, CardsByContainer]:
    """The cards of each container, by the uid of its pod."""
    by_uuid = {card.uuid: card for card in node_cards}
    pods: dict[str, dict[str, tuple[cards.Card, ...]]] = {}
    for holding in holdings:
        if holding.resource in resources and holding.ids and holding.ids <= by_uuid.keys():
            chosen = sorted((by_uuid[uuid] for uuid in holding.ids), key=lambda card: card.index)
            pods.setdefault(holding.pod_uid, {})[holding.container] = tuple(chosen)
    return pods
