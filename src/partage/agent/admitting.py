"""Admitting: whether a pod's grant goes together with those of the pods that were started before.

The scheduler has decided, and decides exactly. But a record can be edited by whoever may edit the
pod, a pod can be bound by somebody who asked nobody, and the kubelet's device IDs say nothing about
cards. So the node looks once more before it starts a container: on no card is more memory granted
than it has, and who has a card for himself is alone there. Compute is not looked at; that nobody
gets more of it than his share is up to the fence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from partage.core import cards, demands, grants
from partage.dialects import aliyun, base, pods, registry


class Running(msgspec.Struct, frozen=True):
    """What a pod that was started has; one that was deleted has it until its processes end."""

    grant: grants.Grant
    leaving: bool = False


class Hindrance(msgspec.Struct, frozen=True):
    """Why a grant cannot be had now, and whose end would be enough to have it."""

    problem: str
    waits_for: tuple[grants.Pod, ...] = ()


def enforced(
    pod: pods.Pod, node: cards.Node, settings: base.Settings
) -> grants.Grant | grants.Damage | None:
    """A bound pod's grant as it is to be enforced; Damage or None as of `registry.granted`."""
    found = registry.granted(pod, node, settings)
    asked = registry.demand(pod, settings) if isinstance(found, grants.Grant) else None
    if not isinstance(found, grants.Grant) or asked is None:
        return found
    return registry.settled(_held_as_asked(found, asked), node)


def counted_as(
    pod: pods.Pod, node: cards.Node, settings: base.Settings, before: grants.Grant | None
) -> base.Settings:
    """The settings in the unit by which a bound pod was placed, and started ``before``.

    An agent may have been started again with another ``--memory-unit``, and the extender may count
    otherwise than this node. What the pod's words mean does not change by that.
    """
    for counting in (settings, base.other_unit(settings)):
        grant = enforced(pod, node, counting)
        if not isinstance(grant, grants.Grant):
            continue
        if grant.dialect != aliyun.Aliyun.name:
            return settings
        if _by_words(pod, counting) == _by_grant(grant) and not (before and moved(before, grant)):
            return counting
    return settings


def moved(before: grants.Grant, now: grants.Grant) -> str:
    """Why a pod's record is not the one that it was started with; empty if it is."""
    shares = [{c.name: c.shares for c in grant.containers} for grant in (before, now)]
    if shares[0] == shares[1]:
        return ""
    return "its record names other cards or shares than it was started with"


def sick(container: grants.ContainerGrant, node: cards.Node) -> str:
    """Why nothing new may start on a container's cards; empty if it may."""
    ill = {card.uuid for card in node.cards if not card.healthy}
    found = [share for share in container.shares if share.uuid in ill]
    return f"card {found[0].index} ({found[0].uuid}) is sick" if found else ""


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


def hindrance(
    grant: grants.Grant, running: Sequence[Running], node: cards.Node
) -> Hindrance | None:
    """What is in the way of a grant; None if nothing is.

    Only where nobody who stays is in the way does it help to wait.
    """
    problem = conflict(grant, (each.grant for each in running), node)
    if not problem:
        return None
    if conflict(grant, (each.grant for each in running if not each.leaving), node):
        return Hindrance(problem)
    wanted = grants.takings(grant).keys()
    beside = (each.grant for each in running if each.leaving)
    return Hindrance(
        problem,
        tuple(other.pod for other in beside if not wanted.isdisjoint(grants.takings(other))),
    )


def _by_words(pod: pods.Pod, settings: base.Settings) -> dict[str, set[int]]:
    """What each container asks for of a card, in MiB."""
    asked = registry.demand(pod, settings)
    return {c.name: {c.demand.memory_mib} for c in (asked.containers if asked else ())}


def _by_grant(grant: grants.Grant) -> dict[str, set[int]]:
    return {c.name: {share.memory_mib for share in c.shares} for c in grant.containers}


def _held_as_asked(grant: grants.Grant, asked: demands.PodDemand) -> grants.Grant:
    """The record says which cards; how a share is held is not read from it.

    The amounts of a record are compared with what the pod asks for, and a pod's limits cannot be
    edited. But "memory is not enforced" is a word that anybody could write into his own record.
    """
    by_name = {container.name: container.demand for container in asked.containers}
    containers = (
        msgspec.structs.replace(
            container,
            memory_enforced=by_name[container.name].memory_enforced,
            compute_mode=by_name[container.name].compute_mode,
            compute_ceiling_percent=by_name[container.name].compute_ceiling_percent,
        )
        for container in grant.containers
    )
    return msgspec.structs.replace(grant, containers=tuple(containers), dialect=asked.dialect)


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
