"""Bound pods: which cards they have, by our own record or by that of their original system.

Reading a bound pod never raises. Whatever is wrong with its annotations is a Damage, because the
pod runs and holds memory all the same; and so is a bound pod that asks for cards and has no record
at all. A pod that asks for nothing and carries somebody's annotations holds nothing: the kubelet
gives no device to a container that names none.

What a family wrote on its pods is read by the family; this module asks the registry for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from partage.core import cards, demands, errors, grants
from partage.core.placement import plans
from partage.dialects import contract, grant_record, nodes, pods, records, registry, rules


def granted(
    pod: pods.Pod, node: cards.Node, settings: contract.Settings
) -> grants.Grant | grants.Damage | None:
    """The cards a bound pod has, from our record or its own system's; None if it has none.

    Annotations of a pod that is not bound are left-overs of a bind that failed.
    """
    if not pod.spec.node_name:
        return None
    try:
        pod_demand = registry.demand(pod, settings)
    except errors.DemandError as error:
        return damage(error) if asks(pod) else None
    return None if pod_demand is None else recorded(pod, pod_demand, node, settings)


def asks(pod: pods.Pod) -> bool:
    """Whether a container names any amount of a card, allowed or not.

    Without that a pod holds nothing, whatever its annotations say: the kubelet gives no device to
    a container that names none.
    """
    return any(_named(pod))


def recorded(
    pod: pods.Pod, pod_demand: demands.PodDemand, node: cards.Node, settings: contract.Settings
) -> grants.Grant | grants.Damage:
    """The cards that a bound pod has, by its records, if it is known what it asks for."""
    try:
        record = grant_record.decode(pod, node)
        if record is None:
            return _taken_over(pod, node, settings)
        _compare(record, pod_demand, pod, node, settings)
        return _located(nodes.rebased(record, node), node)
    except records.Unreadable as unreadable:
        return unreadable.damage


def on_cards(
    pod: pods.Pod,
    node: cards.Node,
    settings: contract.Settings,
    chosen: Mapping[str, Sequence[cards.Card]],
) -> grants.Grant | grants.Damage | None:
    """The grant of a pod whose containers have these cards, whoever gave them."""
    try:
        return registry.on_cards(pod, node, settings, chosen)
    except errors.DemandError as error:
        return damage(error)
    except records.Unreadable as unreadable:
        return unreadable.damage


def damage(error: errors.DemandError) -> grants.Damage:
    """What it means that the request of a pod that is bound cannot be read."""
    return grants.Damage(field=error.field, problem=error.problem, instead=error.instead)


def worst(pod: pods.Pod, node: cards.Node, settings: contract.Settings) -> grants.Grant:
    """The most that a bound pod can have, where nothing readable says what it has.

    It has what it asks for, on whichever cards: so it is counted on every card. Its limits cannot
    be changed, its labels and annotations can, so it is read with and without them, in both units,
    and the most of that counts. A pod that cannot be read in any way has all cards, unless it names
    nothing but a claim: what that has is counted with the claim.
    """
    if _only_uncounted(pod):
        return _everywhere(demands.PodDemand(), pod, node)
    possible = [_everywhere(reading, pod, node) for reading in _readings(pod, node, settings)]
    most = max(possible, key=_weight, default=everything(pod, node))
    return msgspec.structs.replace(most, spread_group=_spread_group(pod))


def everything(pod: pods.Pod, node: cards.Node) -> grants.Grant:
    """All cards of the node, for a pod of which nothing is known."""
    return _everywhere(_ALL_OF_IT, pod, node)


_ALL_OF_IT = demands.PodDemand(
    containers=(
        demands.ContainerDemand(
            "", demands.Demand(cards=demands.ALL_CARDS, exclusive=demands.Exclusive.CARD)
        ),
    )
)


def _compare(
    recorded: grants.Grant,
    pod_demand: demands.PodDemand,
    pod: pods.Pod,
    node: cards.Node,
    settings: contract.Settings,
) -> None:
    """Check a record against the demand; the cluster may have counted in another unit then."""
    try:
        grant_record.compare(recorded, pod_demand, node)
    except records.Unreadable:
        other = registry.demand(pod, contract.other_unit(settings))
        if other is None or other == pod_demand:
            raise
        grant_record.compare(recorded, other, node)


def _located(grant: grants.Grant, node: cards.Node) -> grants.Grant:
    """Check that the node has the cards of a record: shares of other cards would not be counted."""
    uuids = {card.uuid for card in node.cards}
    missing = {s.uuid for c in grant.containers for s in c.shares} - uuids
    if missing and uuids:
        card = rules.shown(min(missing))
        raise records.Unreadable(grant_record.GRANT, f"node {node.name} has no card {card}")
    return grant


def _readings(
    pod: pods.Pod, node: cards.Node, settings: contract.Settings
) -> Iterator[demands.PodDemand]:
    """What the pod may ask for: by its limits alone and by all it says, in either unit."""
    replace = msgspec.structs.replace
    bare = replace(pod, metadata=replace(pod.metadata, annotations={}, labels={}))
    largest_mib = max((card.memory_mib for card in node.cards), default=0)
    for variant in (bare, pod):
        for unit in (settings, contract.other_unit(settings)):
            try:
                pod_demand = registry.demand(variant, unit)
            except errors.DemandError:
                continue
            amounts = [c.demand.memory_mib for c in pod_demand.containers] if pod_demand else []
            possible = unit is settings or max(amounts, default=0) <= largest_mib
            if pod_demand is not None and possible:
                yield pod_demand


def _spread_group(pod: pods.Pod) -> str:
    """The group of a pod; none if it is not told readably."""
    try:
        return registry.spread_group(pod)
    except errors.DemandError:
        return ""


def _only_uncounted(pod: pods.Pod) -> bool:
    named = set(_named(pod))
    return bool(named) and named <= registry.names().uncounted_resources


def _named(pod: pods.Pod) -> Iterator[str]:
    """The resources of cards of which containers name an amount."""
    resources = registry.names().resources
    return (
        name
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for amounts in (container.resources.limits, container.resources.requests)
        for name, amount in amounts.items()
        if name in resources and not rules.nothing(amount)
    )


def _weight(grant: grants.Grant) -> tuple[bool, int, int]:
    shares = [share for container in grant.containers for share in container.shares]
    return (
        any(share.exclusive for share in shares),
        sum(share.memory_mib for share in shares),
        sum(share.compute_percent for share in shares),
    )


def _everywhere(pod_demand: demands.PodDemand, pod: pods.Pod, node: cards.Node) -> grants.Grant:
    return grants.Grant(
        pod=pod.identity,
        node=node.name,
        containers=tuple(
            grants.ContainerGrant(
                name=container.name,
                role=container.role,
                shares=tuple(map(plans.Part(container.demand).share, node.cards)),
            )
            for container in pod_demand.containers
        ),
        dialect=pod_demand.dialect,
        tag=pod_demand.tag,
        exclusive_node=pod_demand.exclusive_node,
    )


def _taken_over(pod: pods.Pod, node: cards.Node, settings: contract.Settings) -> grants.Grant:
    grant = registry.taken_over(pod, node, settings)
    if grant is None:
        problem = "the pod is bound and asks for cards, but no record says which cards it has"
        raise records.Unreadable(grant_record.GRANT, problem)
    return grant
