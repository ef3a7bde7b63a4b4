"""NVIDIA's own device plugin: whole cards, by number.

``nvidia.com/gpu`` also belongs to HAMi, where it counts cards of which parts can be asked for. A
pod that uses any other word of HAMi speaks HAMi; the plain number speaks NVIDIA. Zero cards is a
way to say none: charts write it for their CPU variant, and it works today.

The plugin leaves no record of its choices on the pod, so nothing can be taken over from it. What it
says of a node is a number; memory and model are in the labels of GPU feature discovery beside it.
Without these labels the number stands for cards that are given whole or not at all; so does one
that somebody wrote into the node's status by hand.
People select nodes by these labels, whatever words their pods use, so every node gets them; where
GPU feature discovery runs, they are left to it.
"""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from partage.core import cards, demands
from partage.dialects import contract, nodes, pods, rules
from partage.dialects.families import aliyun, hami

CARDS = hami.CARDS
COUNT = "nvidia.com/gpu.count"
MEMORY_MIB = "nvidia.com/gpu.memory"
PRODUCT = "nvidia.com/gpu.product"
DISCOVERY = "nvidia.com/gfd.timestamp"  # a label of nodes on which GPU feature discovery runs
_LONGEST_LABEL = 63


class Nvidia(contract.Dialect):
    """Whole cards."""

    name = "nvidia"
    resources: ClassVar = {CARDS: msgspec.structs.replace(rules.CARDS, least=0)}
    vendor_resources = frozenset({CARDS})
    measures: ClassVar = {CARDS: contract.CARDS}
    provisioner = contract.Provisioner(
        names=("elasticgpu.io/physical",), source="physicalGPU", whole_only=True
    )
    # A node that is labelled for sharing offers no whole cards.
    modes = (
        *map(aliyun.mode, aliyun.EXCLUSIVE_MODES),
        *(aliyun.mode(value, withheld=frozenset({CARDS})) for value in aliyun.SHARING_MODES),
    )

    def speaks(self, pod: pods.Pod) -> bool:
        written = [spot.container.resources for spot in pods.spots(pod)]
        amounts = [kind.get(CARDS, 0) for r in written for kind in (r.limits, r.requests)]
        return not all(map(rules.nothing, amounts)) and not hami.speaks(pod)

    def demand(self, request: contract.Request) -> demands.PodDemand:
        asking = tuple(asking for asking in request.askings if asking.get(CARDS))
        return demands.PodDemand(
            containers=contract.containers(
                msgspec.structs.replace(request, askings=asking), _demand
            ),
            dialect=self.name,
            refused_by=self.refusing({CARDS}),
        )

    def offered(self, node: cards.Node, _settings: contract.Settings) -> dict[str, int]:
        return {CARDS: len(node.cards)}

    def node_labels(self, described: contract.Described) -> dict[str, str]:
        if DISCOVERY in described.labels or not described.node.cards:
            return {}
        # GPU feature discovery has one model and one memory for a node, those of its first card.
        first = described.node.cards[0]
        labels = {
            COUNT: str(len(described.node.cards)),
            MEMORY_MIB: str(first.memory_mib),
            PRODUCT: _label(first.model),
        }
        return {name: text for name, text in labels.items() if text}

    def advertised(self, node: nodes.Node) -> tuple[cards.Card, ...]:
        count = node.amount(CARDS)
        if not count:
            return ()
        return discovered(node) or nodes.whole_only(count, node.metadata.labels.get(PRODUCT, ""))


def discovered(node: nodes.Node) -> tuple[cards.Card, ...]:
    """The cards that GPU feature discovery found on a node."""
    labels = node.metadata.labels
    count, memory_mib = (_number(labels.get(label, "")) for label in (COUNT, MEMORY_MIB))
    return nodes.counted(count, memory_mib, labels.get(PRODUCT, ""))


def _label(text: str) -> str:
    """As GPU feature discovery writes models: blanks become dashes, what no label may have goes."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "", re.sub(r"\s+", "-", text.strip()))
    return plain[:_LONGEST_LABEL].strip("._-")


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _demand(asking: rules.Asking) -> demands.Demand:
    return demands.Demand(cards=asking.get(CARDS), exclusive=demands.Exclusive.CARD)
