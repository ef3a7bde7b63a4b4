"""T9k: whole cards, a percentage of one card's memory, or the whole node.

Nodes are labelled for one of two modes: ``xgn`` for whole cards and whole nodes, ``sgn`` for
sharing. The percentage is of memory only, and users were asked to keep to it by themselves; nodes
can opt in to having it enforced (docs/dialects.md). T9k's scheduler is closed and no record of its
choices is published, so nothing is written beside our own and nothing can be taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from partage.core import cards, demands
from partage.dialects import contract, modes, nodes, rules
from partage.dialects.families import nvidia

CARDS = "tensorstack.dev/nvidia-gpu"
PERCENT = "tensorstack.dev/nvidia-gpu-percent"
NODE = "tensorstack.dev/nvidia-gpu-node"
SCHEDULER = "t9k-scheduler"
GROUP_LABEL = "scheduler.tensorstack.dev/group-name"
# Of nodes in the mode xgn, so that pods that use no GPU stay away.
EXCLUSIVE_TAINT = nodes.Taint("sched.tensorstack.dev/xgn-mode", "true", "NoSchedule")

# The documentation uses the first prefix on nodes and the second on pods; people mix them up.
_PREFIXES = ("sched.tensorstack.dev/", "scheduler.tensorstack.dev/")
_MODE_LABELS = tuple(f"{prefix}node-alloc-mode" for prefix in _PREFIXES)
_ACCELERATOR_LABELS = tuple(f"{prefix}accelerator" for prefix in _PREFIXES)
ACCELERATOR_LABEL, _ACCELERATOR = _ACCELERATOR_LABELS[0], "nvidia-gpu"
_OTHER_ACCELERATORS = ("amd-gpu", "huawei-npu")  # served by their vendors' own plugins


class T9k(contract.Dialect):
    """The GPU modes of T9k Scheduler."""

    name = "t9k"
    resources: ClassVar = {
        CARDS: rules.CARDS,
        PERCENT: rules.PERCENT,
        NODE: rules.Range("1, as there is one node", 1),
    }
    modes = (
        modes.Mode(
            labels=_MODE_LABELS,
            values=("xgn",),
            trait="t9k/xgn",
            withheld=frozenset({PERCENT}),
            taint=EXCLUSIVE_TAINT,
        ),
        modes.Mode(
            labels=_MODE_LABELS,
            values=("sgn",),
            trait="t9k/sgn",
            withheld=frozenset({CARDS, NODE}),
            memory=modes.Memory.ADVICE,
            compute=demands.ComputeMode.BEST_EFFORT,
        ),
    )
    pod_labels = frozenset({GROUP_LABEL})
    group_label = GROUP_LABEL
    scheduler_name = SCHEDULER

    def demand(self, request: contract.Request) -> demands.PodDemand:
        _check_node(request)
        resources = {resource for asking in request.askings for resource in asking.amounts}
        return demands.PodDemand(
            containers=contract.containers(request, _demand),
            dialect=self.name,
            refused_by=self.refusing(resources),
        )

    def taints(self, labels: Mapping[str, str]) -> tuple[nodes.Taint, ...]:
        # Other vendors' nodes may have the label of the mode, and their plugins know no taint.
        others = (labels.get(label, _ACCELERATOR) != _ACCELERATOR for label in _ACCELERATOR_LABELS)
        return () if any(others) else super().taints(labels)

    def other_vendor(self, labels: Mapping[str, str]) -> str:
        values = ((label, labels.get(label, "")) for label in _ACCELERATOR_LABELS)
        others = (f"{label}: {value}" for label, value in values if value in _OTHER_ACCELERATORS)
        return next(others, "")

    def offered(self, node: cards.Node, _settings: contract.Settings) -> dict[str, int]:
        return {
            CARDS: len(node.cards),
            NODE: min(1, len(node.cards)),
            PERCENT: contract.percents(node),
        }

    def node_labels(self, described: contract.Described) -> dict[str, str]:
        if not described.settings.t9k_label or self.other_vendor(described.labels):
            return {}  # somebody said that the node is another vendor's
        return {ACCELERATOR_LABEL: _ACCELERATOR}

    def advertised(self, node: nodes.Node) -> tuple[cards.Card, ...]:
        advertised = any(map(node.amount, self.resources))
        return nvidia.discovered(node) if advertised else ()

    def warnings(self, request: contract.Request) -> tuple[contract.Caution, ...]:
        if request.pod.spec.scheduler_name == SCHEDULER:
            return ()
        problem = f"T9k's resources are meant for {SCHEDULER}"
        return (contract.Caution(field="spec.schedulerName", problem=problem),)

    def environment(self, start: contract.Start) -> dict[str, str]:
        if start.grant.exclusive_node:
            return {contract.VISIBLE_DEVICES: "all"}
        environment = super().environment(start)
        for share in start.container.shares:
            if not share.exclusive:
                card = contract.card(start.node, share.uuid)
                percent = -(-cards.FULL_PERCENT * share.memory_mib // card.memory_mib)
                environment["T9K_GPU_PERCENT"] = str(percent)
                environment["T9K_GPU_MEMORY"] = str(share.memory_mib)
        return environment


def _check_node(request: contract.Request) -> None:
    """A container that asks for the whole node must be the only one that asks for anything."""
    takers = [asking for asking in request.askings if asking.get(NODE)]
    if not takers:
        return
    others = [(a, r) for a in request.askings for r in a.amounts if (a, r) != (takers[0], NODE)]
    if others:
        asking, resource = others[0]
        problem = f"{takers[0].path} takes the whole node"
        instead = f"name {NODE} once, and no other GPU resource"
        raise asking.refused(resource, problem, instead=instead)


def _demand(asking: rules.Asking) -> demands.Demand:
    if asking.get(NODE):
        return demands.Demand(cards=demands.ALL_CARDS, exclusive=demands.Exclusive.NODE)
    count, percent = asking.get(CARDS), asking.get(PERCENT)
    if count and percent:
        problem = f"the container also asks for whole cards ({CARDS})"
        raise asking.refused(PERCENT, problem, instead="name one of the two")
    if count:
        return demands.Demand(cards=count, exclusive=demands.Exclusive.CARD)
    return demands.Demand(memory_percent=percent, memory_enforced=False)
