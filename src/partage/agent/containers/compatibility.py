"""Whether a pod's grant goes together with those of the pods that were started before.

The scheduler has decided, and decides exactly. But everybody who may edit a pod can edit its
record, a pod can be bound without asking the extender, and the kubelet's device IDs say nothing
about cards. So the node checks again before it starts a container: the memory granted on a card is
not more than the card has, and a pod with exclusive use of a card is alone there. Compute is not
checked; the fence holds every container to its share of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from partage.core import cards, demands, grants
from partage.dialects import bound_pods, contract, pods, registry


class Running(msgspec.Struct, frozen=True):
    """What a pod that was started has; one that was deleted has it until its processes end."""

    grant: grants.Grant
    leaving: bool = False


class Hindrance(msgspec.Struct, frozen=True):
    """Why a grant cannot be had now, and whose end would be enough to have it."""

    problem: str
    waits_for: tuple[grants.Pod, ...] = ()


def enforced(
    pod: pods.Pod, node: cards.Node, settings: contract.Settings
) -> grants.Grant | grants.Damage | None:
    """A bound pod's grant as it is to be enforced; Damage or None as of `bound_pods.granted`."""
    grant = bound_pods.granted(pod, node, settings)
    demand = registry.demand(pod, settings) if isinstance(grant, grants.Grant) else None
    if not isinstance(grant, grants.Grant) or demand is None:
        return grant
    return registry.settled(_held_as_asked(grant, demand), node)


def held_as(grant: grants.Grant, before: grants.Grant) -> grants.Grant:
    """The grant, its memory held as it was ``before``, when the pod was started.

    The node may be in another mode since. Memory is not held more loosely or more tightly by that:
    neighbours count on the one, and the program on the other. Time can be divided anew at any
    moment, and follows the mode; but what a container has by a claim is as it was compared with the
    claim's object when it started, since nothing in the pod says it.
    """
    by_name = {container.name: container for container in before.containers}
    containers = (
        _held_as(container, by_name.get(container.name, container))
        for container in grant.containers
    )
    return msgspec.structs.replace(grant, containers=tuple(containers))


def outdated(
    pod: pods.Pod, node: cards.Node, settings: contract.Settings, before: grants.Grant
) -> bool:
    """Whether the node, as it is now, would not take a pod that runs, or hold its memory so."""
    grant, demand = enforced(pod, node, settings), registry.demand(pod, settings)
    if not isinstance(grant, grants.Grant) or demand is None:
        return False
    refused = not node.traits.isdisjoint(demand.refused_by)
    return refused or held_as(grant, before) != grant


def counted_as(
    pod: pods.Pod, node: cards.Node, settings: contract.Settings, before: grants.Grant | None
) -> contract.Settings:
    """The settings in the unit by which a bound pod was placed, and started ``before``.

    An agent may have been started again with another ``--memory-unit``, and the extender may count
    otherwise than this node. What the pod's words mean does not change by that.
    """
    for counting in (settings, contract.other_unit(settings)):
        grant = enforced(pod, node, counting)
        if not isinstance(grant, grants.Grant):
            continue
        if not registry.counted_in_chosen_unit(grant):
            return settings
        if _by_words(pod, counting) == _by_grant(grant) and not (before and moved(before, grant)):
            return counting
    return settings


def moved(before: grants.Grant, now: grants.Grant) -> str:
    """Why a pod's record is not the one that it was started with; empty if it is."""
    shares = [{c.name: c.shares for c in grant.containers} for grant in (before, now)]
    if shares[0] == shares[1]:
        return ""
    return "its record names other cards or shares than those it was started with"


def unhealthy(container: grants.ContainerGrant, node: cards.Node) -> str:
    """Why nothing new may start on a container's cards; empty if it may."""
    unhealthy_uuids = {card.uuid for card in node.cards if not card.healthy}
    for share in container.shares:
        if share.uuid in unhealthy_uuids:
            return f"card {share.index} ({share.uuid}) is unhealthy"
    return ""


def conflict(grant: grants.Grant, others: Iterable[grants.Grant], node: cards.Node) -> str:
    """Why the grant cannot stand beside those of the other pods on the node; empty if it can."""
    own, beside = _own(grant), _beside(grant, others)
    sizes = {card.uuid: card.memory_mib for card in node.cards}
    for uuid in dict.fromkeys(uuid for takings in own for uuid in takings):
        if uuid not in sizes:
            return f"node {node.name} has no card {uuid}"
        problem = _crowded(_on(uuid, own), _on(uuid, beside), sizes[uuid])
        if problem:
            return f"card {uuid}: {problem}"
    return ""


def hindrance(
    grant: grants.Grant, running: Sequence[Running], node: cards.Node
) -> Hindrance | None:
    """What is in the way of a grant; None if nothing is.

    It helps to wait only if all pods in the way are leaving.
    """
    problem = conflict(grant, (other.grant for other in running), node)
    if not problem:
        return None
    if conflict(grant, (other.grant for other in running if not other.leaving), node):
        return Hindrance(problem)
    beside = (other.grant for other in running if other.leaving)
    return Hindrance(
        problem,
        tuple(g.pod for g in beside if not grants.uuids(grant).isdisjoint(grants.uuids(g))),
    )


def _by_words(pod: pods.Pod, settings: contract.Settings) -> dict[str, set[int]]:
    """What each container asks for of a card, in MiB."""
    demand = registry.demand(pod, settings)
    return {c.name: {c.demand.memory_mib} for c in (demand.containers if demand else ())}


def _by_grant(grant: grants.Grant) -> dict[str, set[int]]:
    return {c.name: {share.memory_mib for share in c.shares} for c in grant.containers}


def _held_as_asked(grant: grants.Grant, demand: demands.PodDemand) -> grants.Grant:
    """The record says which cards; how a share is held is not read from it.

    The amounts of a record are compared with what the pod asks for, and a pod's limits cannot be
    edited. But "memory is not enforced" is a word that tenants could write into their own records.
    """
    by_name = {container.name: container.demand for container in demand.containers}
    containers = (
        container
        if container.elastic_gpu  # the pod asks for what that has; it is compared with that
        else msgspec.structs.replace(
            container,
            memory_enforced=by_name[container.name].memory_enforced,
            compute_mode=by_name[container.name].compute_mode,
            compute_ceiling_percent=by_name[container.name].compute_ceiling_percent,
        )
        for container in grant.containers
    )
    return msgspec.structs.replace(grant, containers=tuple(containers), dialect=demand.dialect)


def _held_as(
    container: grants.ContainerGrant, before: grants.ContainerGrant
) -> grants.ContainerGrant:
    replace = msgspec.structs.replace
    held = replace(container, memory_enforced=before.memory_enforced)
    if not before.elastic_gpu:
        return held
    return replace(
        held,
        elastic_gpu=before.elastic_gpu,
        shares=before.shares,
        compute_mode=before.compute_mode,
        compute_ceiling_percent=before.compute_ceiling_percent,
    )


_Takings = dict[str, grants.Taking]  # by card


def _own(grant: grants.Grant) -> list[_Takings]:
    return [grants.takings(grant), *grants.claimed_takings(grant).values()]


def _beside(grant: grants.Grant, others: Iterable[grants.Grant]) -> list[_Takings]:
    """What others use.

    An ElasticGPU that several pods use is there once, and not in the way of one more that uses it.
    """
    beside: list[_Takings] = []
    claimed: dict[str, _Takings] = {}
    for other in others:
        beside.append(grants.takings(other))
        claimed.update(grants.claimed_takings(other))
    own = grants.claimed_takings(grant)
    return [*beside, *(takings for name, takings in claimed.items() if name not in own)]


def _on(uuid: str, several: Iterable[_Takings]) -> list[grants.Taking]:
    return [takings[uuid] for takings in several if uuid in takings]


def _crowded(own: list[grants.Taking], held: list[grants.Taking], memory_mib: int) -> str:
    if held and any(taking.exclusive for taking in (*own, *held)):
        return "one of its pods has exclusive use of it, and other pods run there"
    granted_mib, taken_mib = (sum(t.memory_mib for t in takings) for takings in (own, held))
    if taken_mib + granted_mib > memory_mib:
        return (
            f"{granted_mib} MiB are granted in addition to {taken_mib} MiB of running pods, "
            f"but the card has {memory_mib} MiB"
        )
    return ""
