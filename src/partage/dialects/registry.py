"""The dialects together: the way from pods to demands, and from grants back to pods.

A pod speaks one dialect. Two in one pod would be two opinions about the same cards, and the record
of a grant names one, so a mixture is refused and both places are named.

Reading a bound pod never raises. Whatever is wrong with its annotations is a Damage, because the
pod runs and holds memory all the same; and so is a bound pod that asks for cards and has no record
at all. A pod that asks for nothing and carries somebody's annotations holds nothing: the kubelet
gives no device to a container that names none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from partage.core import cards, demands, errors, grants, plans
from partage.dialects import (
    aliyun,
    base,
    elastic,
    gaia,
    hami,
    native,
    nodes,
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
_RESOURCES = frozenset(name for dialect in DIALECTS for name in dialect.resources)


def demand(pod: pods.Pod, settings: base.Settings) -> demands.PodDemand | None:
    """What the pod asks for; None if it asks for no card in any known dialect."""
    dialect = _spoken(pod)
    if dialect is None:
        return None
    native.fence(pod)  # raises for a level that does not exist
    return dialect.demand(_request(pod, dialect, settings))


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


def assigned(grant: grants.Grant) -> dict[str, str]:
    """The annotations that change once the pod's containers have been given their cards."""
    return _dialect(grant).assigned()


def environment(
    grant: grants.Grant,
    container: grants.ContainerGrant,
    node: cards.Node,
    settings: base.Settings,
) -> dict[str, str]:
    """What the family's programs expect to find in the container's environment."""
    start = base.Start(grant=grant, container=container, node=node, settings=settings)
    return _dialect(grant).environment(start)


def offered(node: cards.Node, settings: base.Settings, spoken: Collection[str]) -> dict[str, int]:
    """How much of each resource a node with these cards offers in these dialects."""
    found: dict[str, int] = {}
    for dialect in _named(spoken):
        for resource, amount in dialect.offered(node, settings).items():
            found[resource] = max(amount, found.get(resource, 0))
    return found


def reported(node: cards.Node, spoken: Collection[str]) -> dict[str, int]:
    """The amounts that these dialects write into the status of a node by themselves."""
    return {r: n for dialect in _named(spoken) for r, n in dialect.reported(node).items()}


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
    except errors.DemandError as error:
        return damage(error) if asks(pod) else None
    return None if asked is None else recorded(pod, asked, node, settings)


def asks(pod: pods.Pod) -> bool:
    """Whether a container names any amount of a card, allowed or not.

    Without that a pod holds nothing, whatever its annotations say: the kubelet gives no device to
    a container that names none.
    """
    return any(
        name in _RESOURCES and not reading.nothing(amount)
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for amounts in (container.resources.limits, container.resources.requests)
        for name, amount in amounts.items()
    )


def recorded(
    pod: pods.Pod, asked: demands.PodDemand, node: cards.Node, settings: base.Settings
) -> grants.Grant | grants.Damage:
    """The cards that a bound pod has, by its records, if it is known what it asks for."""
    try:
        record = native.decode(pod, node)
        if record is None:
            return _taken_over(pod, node, settings)
        _compare(record, asked, pod, node, settings)
        return _located(nodes.rebased(record, node), node)
    except records.Unreadable as unreadable:
        return unreadable.damage


def damage(error: errors.DemandError) -> grants.Damage:
    """What it means that the request of a pod that is bound cannot be read."""
    return grants.Damage(field=error.field, problem=error.problem, instead=error.instead)


def worst(pod: pods.Pod, node: cards.Node, settings: base.Settings) -> grants.Grant:
    """The most that a bound pod can have, where nothing readable says what it has.

    It has what it asks for, on whichever cards: so it is counted on every card. Its limits cannot
    be changed, its labels and annotations can, so it is read with and without them, in both units,
    and the most of that counts. A pod that cannot be read in any way has all cards.
    """
    found = [_everywhere(asked, pod, node) for asked in _readings(pod, node, settings)]
    return max(found, key=_weight, default=everything(pod, node))


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


def knows(resources: Collection[str]) -> bool:
    """Whether all these are resources of some dialect."""
    return _RESOURCES.issuperset(resources)


def trimmed(pod: pods.Pod) -> pods.Pod:
    """The pod without annotations that no dialect reads; tenants write them, and we may keep it."""
    kept = {
        name: text if len(text) <= _LONGEST_KEPT else text[:_LONGEST_SHOWN]
        for name, text in pod.metadata.annotations.items()
        if name.startswith(PREFIXES)
    }
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, annotations=kept)
    )


# Records of dozens of containers are shorter; what is cut stays unreadable.
_LONGEST_KEPT = 1 << 15
_LONGEST_SHOWN = 64
PREFIXES = (  # of the annotations that dialects read
    native.DOMAIN,
    "ALIYUN_COM_",
    "scheduler.framework.gpushare.",
    "hami.io/",
    "nvidia.com/",
    "tencent.com/",
    "tke.cloud.tencent.com/",
    "elasticgpu.io/",
)


def settled(grant: grants.Grant, node: cards.Node) -> grants.Grant:
    """The grant as it is to be enforced, with what the node's labels decide filled in."""
    dialect = _dialect(grant)
    containers = tuple(_settled(c, dialect, node.traits) for c in grant.containers)
    return msgspec.structs.replace(grant, containers=containers)


class Found(msgspec.Struct, frozen=True):
    """A node with its cards, and what is wrong with what is written on it."""

    node: cards.Node
    problems: tuple[str, ...] = ()


def found(node: nodes.Node, sick: Collection[int] = ()) -> Found:
    """The node as the core knows it; ``sick`` are the indexes of cards that others ruled out.

    What cannot be read is a problem to report, and its cards are not there: nothing new is placed
    on them, and what was granted on them stays counted.
    """
    problems: list[str] = []
    try:
        there = nodes.published(node)
        if there is None:
            there = _advertised(node)
    except nodes.Unreadable as unreadable:
        there = ()
        problems.append(str(unreadable))
    labels = node.metadata.labels
    problems += _slips(labels)
    bare = cards.Node(
        name=node.metadata.name,
        traits=node_traits(labels),
        cards_by=cards_by(labels),
        address=node.address,
    )
    try:
        there = nodes.judged(there, sick)
        return Found(msgspec.structs.replace(bare, cards=there), tuple(problems))
    except ValueError as error:  # two cards with one uuid or index
        return Found(bare, (*problems, str(error)))


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


def _slips(labels: Mapping[str, str]) -> list[str]:
    """Labels that set a mode, with a value that sets none: the node would be without any."""
    modes: dict[str, set[str]] = {}
    for dialect in DIALECTS:
        for label, value in (*dialect.traits, *dialect.placements):
            modes.setdefault(label, set()).add(value)
    return [
        f"label {label}: {reading.shown(labels[label])} is none of {', '.join(sorted(known))}"
        for label, known in modes.items()
        if len(known) > 1 and label in labels and labels[label] not in known
    ]


def _advertised(node: nodes.Node) -> tuple[cards.Card, ...]:
    """What other systems say of the node's cards; one that names them knows more than a count."""
    said = [there for there in (dialect.advertised(node) for dialect in DIALECTS) if there]
    named = (there for there in said if not any(map(nodes.unnamed, there)))
    return next(named, said[0] if said else ())


def _spoken(pod: pods.Pod) -> base.Dialect | None:
    named = pods.resources(pod)
    # Most pods name one family or none, and asking all families in turn takes eight times as long.
    asked = (d for d in DIALECTS if d is _OWN or not named.isdisjoint(d.resources))
    speaking = [dialect for dialect in asked if dialect.speaks(pod)]
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


def _named(spoken: Collection[str]) -> Iterator[base.Dialect]:
    return (dialect for dialect in DIALECTS if dialect.name in spoken)


def _dialect(grant: grants.Grant) -> base.Dialect:
    """The grant's dialect; a grant that was not made from a pod speaks our own."""
    return _BY_NAME.get(grant.dialect, _OWN)


def _compare(
    recorded: grants.Grant,
    asked: demands.PodDemand,
    pod: pods.Pod,
    node: cards.Node,
    settings: base.Settings,
) -> None:
    """Check a record against the demand; the cluster may have counted in another unit then."""
    try:
        native.compare(recorded, asked, node)
    except records.Unreadable:
        other = demand(pod, base.other_unit(settings))
        if other is None or other == asked:
            raise
        native.compare(recorded, other, node)


def _located(grant: grants.Grant, node: cards.Node) -> grants.Grant:
    """Check that the cards of a record are there: on others nobody would miss what it takes."""
    there = {card.uuid for card in node.cards}
    missing = {s.uuid for c in grant.containers for s in c.shares} - there
    if missing and there:
        card = reading.shown(min(missing))
        raise records.Unreadable(native.GRANT, f"node {node.name} has no card {card}")
    return grant


def _readings(
    pod: pods.Pod, node: cards.Node, settings: base.Settings
) -> Iterator[demands.PodDemand]:
    """What the pod may ask for: by its limits alone and by all it says, in either unit."""
    replace = msgspec.structs.replace
    bare = replace(pod, metadata=replace(pod.metadata, annotations={}, labels={}))
    largest_mib = max((card.memory_mib for card in node.cards), default=0)
    for each in (bare, pod):
        for unit in (settings, base.other_unit(settings)):
            try:
                asked = demand(each, unit)
            except errors.DemandError:
                continue
            amounts = [c.demand.memory_mib for c in asked.containers] if asked else []
            possible = unit is settings or max(amounts, default=0) <= largest_mib
            if asked is not None and possible:
                yield asked


def _weight(grant: grants.Grant) -> tuple[bool, int, int]:
    shares = [share for container in grant.containers for share in container.shares]
    return (
        any(share.exclusive for share in shares),
        sum(share.memory_mib for share in shares),
        sum(share.compute_percent for share in shares),
    )


def _everywhere(asked: demands.PodDemand, pod: pods.Pod, node: cards.Node) -> grants.Grant:
    return grants.Grant(
        pod=pod.identity,
        node=node.name,
        containers=tuple(
            grants.ContainerGrant(
                name=container.name,
                role=container.role,
                shares=tuple(map(plans.Part(container.demand).share, node.cards)),
            )
            for container in asked.containers
        ),
        dialect=asked.dialect,
        tag=asked.tag,
        exclusive_node=asked.exclusive_node,
    )


def _taken_over(pod: pods.Pod, node: cards.Node, settings: base.Settings) -> grants.Grant:
    dialect = _spoken(pod)
    found = None if dialect is None else dialect.granted(_request(pod, dialect, settings), node)
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
