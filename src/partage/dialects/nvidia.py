"""NVIDIA's own device plugin: whole cards, by number.

``nvidia.com/gpu`` also belongs to HAMi, where it counts cards of which parts can be asked for. A
pod that uses any other word of HAMi speaks HAMi; the plain number speaks NVIDIA. Zero cards is a
way to say none: charts write it for their CPU variant, and it works today.

The plugin leaves no record of its choices on the pod, so nothing can be taken over from it. What it
says of a node is a number; memory and model are in the labels of GPU feature discovery beside it.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from partage.core import cards, demands
from partage.dialects import aliyun, base, hami, nodes, pods, reading

CARDS = hami.CARDS
COUNT = "nvidia.com/gpu.count"
MEMORY_MIB = "nvidia.com/gpu.memory"
PRODUCT = "nvidia.com/gpu.product"


class Nvidia(base.Dialect):
    """Whole cards."""

    name = "nvidia"
    resources: ClassVar = {CARDS: msgspec.structs.replace(reading.CARDS, least=0)}

    def speaks(self, pod: pods.Pod) -> bool:
        written = [spot.container.resources for spot in pods.spots(pod)]
        amounts = [kind.get(CARDS, 0) for r in written for kind in (r.limits, r.requests)]
        return not all(map(reading.nothing, amounts)) and not hami.speaks(pod)

    def demand(self, request: base.Request) -> demands.PodDemand:
        asking = tuple(asking for asking in request.askings if asking.get(CARDS))
        return demands.PodDemand(
            containers=base.containers(msgspec.structs.replace(request, askings=asking), _demand),
            dialect=self.name,
            # A node labelled for sharing offers no whole cards.
            refused_by=tuple(map(aliyun.trait, aliyun.SHARING_MODES)),
        )

    def offered(self, node: cards.Node, _settings: base.Settings) -> dict[str, int]:
        if node.traits & {aliyun.trait(mode) for mode in aliyun.SHARING_MODES}:
            return {}
        return {CARDS: len(node.cards)}

    def advertised(self, node: nodes.Node) -> tuple[cards.Card, ...]:
        return discovered(node) if node.amount(CARDS) else ()


def discovered(node: nodes.Node) -> tuple[cards.Card, ...]:
    """The cards that GPU feature discovery found on a node."""
    labels = node.metadata.labels
    count, memory_mib = (_number(labels.get(label, "")) for label in (COUNT, MEMORY_MIB))
    return nodes.counted(count, memory_mib, labels.get(PRODUCT, ""))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _demand(asking: reading.Asking) -> demands.Demand:
    return demands.Demand(cards=asking.get(CARDS), exclusive=demands.Exclusive.CARD)
