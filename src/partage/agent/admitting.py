"""Admitting: whether a pod's grant goes together with those of the pods that were started before.

The scheduler has decided, and decides exactly. But a record can be edited by whoever may edit the
pod, a pod can be bound by somebody who asked nobody, and the kubelet's device IDs say nothing about
cards. So the node looks once more before it starts a container, by the same sums: on no card is
more granted than it has, and who has a card for himself is alone there.
"""

from __future__ import annotations

from collections.abc import Iterable

from partage.core import cards, grants


def conflict(grant: grants.Grant, others: Iterable[grants.Grant], node: cards.Node) -> str:
    """Why the grant cannot stand beside those of the other pods on the node; empty if it can."""
    wanted = grants.takings(grant)
    beside = [grants.takings(other) for other in others]
    sizes = {card.uuid: card.memory_mib for card in node.cards}
    for uuid, taking in wanted.items():
        if uuid not in sizes:
            return f"node {node.name} has no card {uuid}"
        held = [each[uuid] for each in beside if uuid in each]
        problem = _crowded(taking, held, sizes[uuid])
        if problem:
            return f"card {uuid}: {problem}"
    return ""


def _crowded(wanted: grants.Taking, held: list[grants.Taking], memory_mib: int) -> str:
    if held and (wanted.exclusive or any(each.exclusive for each in held)):
        return "one of its pods has it for itself, and there are others"
    taken_mib = sum(each.memory_mib for each in held)
    if taken_mib + wanted.memory_mib > memory_mib:
        return (
            f"{wanted.memory_mib} MiB are granted beside {taken_mib} MiB of running pods, "
            f"and it has {memory_mib}"
        )
    return ""
