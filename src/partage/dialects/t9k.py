"""T9k: whole cards, a percentage of one card's memory, or the whole node.

Nodes are labelled for one of two modes: ``xgn`` for whole cards and whole nodes, ``sgn`` for
sharing. The percentage is of memory only, and users were asked to keep to it by themselves; nodes
can opt in to having it enforced (docs/dialects.md). T9k's scheduler is closed and no record of its
choices is published, so nothing is written beside our own and nothing can be taken over.
"""

from __future__ import annotations

from typing import ClassVar

from partage.core import cards, demands
from partage.dialects import base, nodes, nvidia, reading

CARDS = "tensorstack.dev/nvidia-gpu"
PERCENT = "tensorstack.dev/nvidia-gpu-percent"
NODE = "tensorstack.dev/nvidia-gpu-node"
SCHEDULER = "t9k-scheduler"

# The documentation uses the first prefix on nodes and the second on pods; people mix them up.
_MODE_LABELS = (
    "sched.tensorstack.dev/node-alloc-mode",
    "scheduler.tensorstack.dev/node-alloc-mode",
)
_EXCLUSIVE, _SHARED = "t9k/xgn", "t9k/sgn"


class T9k(base.Dialect):
    """The GPU modes of T9k Scheduler."""

    name = "t9k"
    resources: ClassVar = {
        CARDS: reading.CARDS,
        PERCENT: reading.PERCENT,
        NODE: reading.Range("1: a pod is on one node", 1),
    }
    traits: ClassVar = {
        (label, mode): f"t9k/{mode}" for label in _MODE_LABELS for mode in ("xgn", "sgn")
    }

    def demand(self, request: base.Request) -> demands.PodDemand:
        _check_node(request)
        containers = base.containers(request, _demand)
        refusing = {_SHARED if c.demand.whole else _EXCLUSIVE for c in containers}
        return demands.PodDemand(
            containers=containers, dialect=self.name, refused_by=tuple(sorted(refusing))
        )

    def offered(self, node: cards.Node, _settings: base.Settings) -> dict[str, int]:
        whole = {CARDS: len(node.cards), NODE: min(1, len(node.cards))}
        shared = {PERCENT: base.percents(node)}
        if _SHARED in node.traits:
            return shared
        return whole if _EXCLUSIVE in node.traits else whole | shared

    def advertised(self, node: nodes.Node) -> tuple[cards.Card, ...]:
        advertised = any(map(node.amount, self.resources))
        return nvidia.discovered(node) if advertised else ()

    def warnings(self, request: base.Request) -> tuple[str, ...]:
        if request.pod.spec.scheduler_name == SCHEDULER:
            return ()
        return (f"spec.schedulerName: T9k's resources are meant for {SCHEDULER}",)

    def environment(self, start: base.Start) -> dict[str, str]:
        if start.grant.exclusive_node:
            return {base.VISIBLE_DEVICES: "all"}
        environment = super().environment(start)
        for share in start.container.shares:
            if not share.exclusive:
                card = base.card(start.node, share.uuid)
                percent = -(-cards.FULL_PERCENT * share.memory_mib // card.memory_mib)
                environment["T9K_GPU_PERCENT"] = str(percent)
                environment["T9K_GPU_MEMORY"] = str(share.memory_mib)
        return environment


def _check_node(request: base.Request) -> None:
    """Who asks for the whole node asks alone."""
    takers = [asking for asking in request.askings if asking.get(NODE)]
    if not takers:
        return
    others = [(a, r) for a in request.askings for r in a.amounts if (a, r) != (takers[0], NODE)]
    if others:
        asking, resource = others[0]
        problem = f"{takers[0].path} takes the whole node"
        instead = f"name {NODE} once in the pod, and nothing beside it"
        raise asking.refused(resource, problem, instead=instead)


def _demand(asking: reading.Asking) -> demands.Demand:
    if asking.get(NODE):
        return demands.Demand(cards=demands.ALL_CARDS, exclusive=demands.Exclusive.NODE)
    count, percent = asking.get(CARDS), asking.get(PERCENT)
    if count and percent:
        problem = f"the container also asks for whole cards ({CARDS})"
        raise asking.refused(PERCENT, problem, instead="name one of the two")
    if count:
        return demands.Demand(cards=count, exclusive=demands.Exclusive.CARD)
    return demands.Demand(memory_percent=percent, memory_enforced=False)
