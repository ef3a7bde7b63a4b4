"""NVIDIA's own device plugin: whole cards, by number.

``nvidia.com/gpu`` also belongs to HAMi, where it counts cards of which parts can be asked for. A
pod that uses any other word of HAMi speaks HAMi; the plain number speaks NVIDIA. Zero cards is a
way to say none: charts write it for their CPU variant, and it works today.

The plugin leaves no record of its choices on the pod, so nothing can be taken over from it.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from partage.core import demands
from partage.dialects import aliyun, base, hami, pods, reading

CARDS = hami.CARDS


class Nvidia(base.Dialect):
    """Whole cards."""

    name = "nvidia"
    resources: ClassVar = {CARDS: msgspec.structs.replace(reading.CARDS, least=0)}

    def speaks(self, pod: pods.Pod) -> bool:
        written = [spot.container.resources for spot in pods.spots(pod)]
        amounts = [kind.get(CARDS, 0) for r in written for kind in (r.limits, r.requests)]
        return any(amount not in (0, "0") for amount in amounts) and not hami.speaks(pod)

    def demand(self, request: base.Request) -> demands.PodDemand:
        asking = tuple(asking for asking in request.askings if asking.get(CARDS))
        return demands.PodDemand(
            containers=base.containers(msgspec.structs.replace(request, askings=asking), _demand),
            dialect=self.name,
            # A node labelled for sharing offers no whole cards.
            refused_by=tuple(map(aliyun.trait, aliyun.SHARING_MODES)),
        )


def _demand(asking: reading.Asking) -> demands.Demand:
    return demands.Demand(cards=asking.get(CARDS), exclusive=demands.Exclusive.CARD)
