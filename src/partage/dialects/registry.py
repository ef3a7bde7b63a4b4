"""The dialects together: the way from pods to demands, and from grants back to pods.

A pod speaks one dialect. Two in one pod would be two opinions about the same cards, and the record
of a grant names one, so a mixture is refused and both places are named.

Reading a bound pod never raises. Whatever is wrong with its annotations is a Damage, because the
pod runs and holds memory all the same; and so is a bound pod that asks for cards and has no record
at all. A pod that asks for nothing and carries somebody's annotations holds nothing: the kubelet
gives no device to a container that names none.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.core import cards, demands, errors, grants
from partage.dialects import (
    aliyun,
    base,
    elastic,
    gaia,
    hami,
    native,
    nvidia,
    pods,
    qgpu,
    reading,
    records,
    t9k,
)

_OWN = native.Native()
DIALECTS: tuple[base.Dialect, ...] = (
    _OWN,
    aliyun.Aliyun(),
    qgpu.Qgpu(),
    gaia.Gaia(),
    elastic.Elastic(),
    t9k.T9k(),
    hami.Hami(),
    nvidia.Nvidia(),
)
_BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


def demand(pod: pods.Pod, settings: base.Settings) -> demands.PodDemand | None:
    """What the pod asks for; None if it asks for no card in any known dialect."""
    dialect = _spoken(pod)
    return None if dialect is None else dialect.demand(_request(pod, dialect, settings))


def warnings(pod: pods.Pod, settings: base.Settings) -> tuple[str, ...]:
    """What the user should know about a pod whose demand is allowed."""
    dialect = _spoken(pod)
    return () if dialect is None else dialect.warnings(_request(pod, dialect, settings))


def marks(
    grant: grants.Grant,
    pod: pods.Pod,
    node: cards.Node,
    *,
    now_ns: int,
    settings: base.Settings,
) -> base.Marks:
    """What is written on a pod that is bound with this grant."""
    bound = base.Bound(grant=grant, pod=pod, node=node, now_ns=now_ns, settings=settings)
    own = _dialect(grant).marks(bound)
    return base.Marks({native.GRANT: native.encode(grant), **own.annotations}, own.labels)


def assigned(grant: grants.Grant, *, now_ns: int) -> dict[str, str]:
    """The annotations that change once the pod's containers have been given their cards."""
    return _dialect(grant).assigned(now_ns)


def environment(
    grant: grants.Grant,
    container: grants.ContainerGrant,
    node: cards.Node,
    settings: base.Settings,
) -> dict[str, str]:
    """What the family's programs expect to find in the container's environment."""
    start = base.Start(grant=grant, container=container, node=node, settings=settings)
    return _dialect(grant).environment(start)


def granted(
    pod: pods.Pod, node: cards.Node, settings: base.Settings
) -> grants.Grant | grants.Damage | None:
    """The cards a bound pod has, from our record or its own system's; None if it has none.

    Annotations of a pod that is not bound are left-overs of a bind that failed.
    """
    if not pod.spec.node_name:
        return None
    try:
        asked = demand(pod, settings)
        if asked is None:
            return None
        recorded = native.decode(pod, node)
        if recorded is None:
            return _taken_over(pod, node, settings)
        native.compare(recorded, asked, node)
        return recorded
    except records.Unreadable as unreadable:
        return unreadable.damage
    except errors.DemandError as error:
        return grants.Damage(field=error.field, problem=error.problem, instead=error.instead)


def settled(grant: grants.Grant, node: cards.Node) -> grants.Grant:
    """The grant as it is to be enforced, with what the node's labels decide filled in."""
    dialect = _dialect(grant)
    containers = tuple(_settled(c, dialect, node.traits) for c in grant.containers)
    return msgspec.structs.replace(grant, containers=containers)


def node_traits(labels: Mapping[str, str]) -> frozenset[str]:
    """What the labels of a node mean to the dialects."""
    return frozenset(
        dialect.traits[label]
        for dialect in DIALECTS
        for label in labels.items()
        if label in dialect.traits
    )


def cards_by(labels: Mapping[str, str]) -> str:
    """The policy that the labels of a node name for the choice among its cards, if any."""
    named = (
        d.placements[label] for d in DIALECTS for label in labels.items() if label in d.placements
    )
    return next(named, "")


def _spoken(pod: pods.Pod) -> base.Dialect | None:
    speaking = [dialect for dialect in DIALECTS if dialect.speaks(pod)]
    if len(speaking) > 1:
        first, second = (
            reading.first_field(pod, dialect.resources) or reading.annotation_field(native.CARDS)
            for dialect in speaking[:2]
        )
        problem = f"the pod also asks for cards in other words ({first})"
        raise errors.DemandError(second, problem, instead="use one family of names in a pod")
    return speaking[0] if speaking else None


def _request(pod: pods.Pod, dialect: base.Dialect, settings: base.Settings) -> base.Request:
    return base.Request(pod, reading.askings(pod, dialect.resources), settings)


def _dialect(grant: grants.Grant) -> base.Dialect:
    """The grant's dialect; a grant that was not made from a pod speaks our own."""
    return _BY_NAME.get(grant.dialect, _OWN)


def _taken_over(pod: pods.Pod, node: cards.Node, settings: base.Settings) -> grants.Grant | None:
    dialect = _spoken(pod)
    if dialect is None:
        return None
    found = dialect.granted(_request(pod, dialect, settings), node)
    if found is None:
        problem = "the pod is bound and asks for cards, but nothing says which it has"
        raise records.Unreadable(native.GRANT, problem)
    return found


def _settled(
    container: grants.ContainerGrant, dialect: base.Dialect, traits: frozenset[str]
) -> grants.ContainerGrant:
    enforced = container.memory_enforced and not dialect.advisory & traits
    mode, ceiling = container.compute_mode, container.compute_ceiling_percent
    if mode is demands.ComputeMode.NODE:
        named = (mode for trait, mode in dialect.compute_modes.items() if trait in traits)
        mode = next(named, demands.ComputeMode.BEST_EFFORT)
        ceiling = cards.FULL_PERCENT if mode is demands.ComputeMode.BURST else 0
    return msgspec.structs.replace(
        container,
        memory_enforced=enforced or native.ENFORCED in traits,
        compute_mode=mode,
        compute_ceiling_percent=ceiling,
    )
