"""The families together: which dialects there are, and the one that a pod or a grant speaks.

A pod speaks one dialect. Two in one pod would be two opinions about the same cards, and the record
of a grant names one, so a mixture is refused and both fields are named.

``DIALECTS`` is where a family is entered, and nowhere else: all that others need to know of the
families' names is gathered from it here. Which cards a bound pod has is told by
:mod:`partage.dialects.bound_pods`.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from partage.core import cards, demands, errors, grants
from partage.dialects import (
    compute_policies,
    contract,
    grant_record,
    modes,
    nodes,
    pods,
    records,
    rules,
    spread_groups,
)
from partage.dialects.families import (
    aliyun,
    elastic,
    elastic_claims,
    gaia,
    hami,
    native,
    nvidia,
    qgpu,
    t9k,
)

_OWN = native.Native()
DIALECTS: tuple[contract.Dialect, ...] = (
    _OWN,
    aliyun.Aliyun(),
    qgpu.Qgpu(),
    gaia.Gaia(),
    elastic.Elastic(),
    elastic_claims.ElasticClaims(),
    t9k.T9k(),
    hami.Hami(),
    nvidia.Nvidia(),
)


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """The names of all families together, for questions that are asked of every pod."""

    by_name: Mapping[str, contract.Dialect]
    own_prefix: str  # how the names of our own resources and annotations begin
    resources: frozenset[str]
    inert_resources: frozenset[str]
    vendor_resources: frozenset[str]
    uncounted_resources: frozenset[str]  # what they give is counted with another grant
    annotation_prefixes: tuple[str, ...]
    asking_annotations: tuple[str, ...]  # how they begin
    record_annotations: frozenset[str]
    pod_labels: tuple[str, ...]
    group_labels: tuple[str, ...]


def names() -> Names:
    """The names of all families that are entered."""
    return _names(DIALECTS)


@functools.cache
def _names(dialects: tuple[contract.Dialect, ...]) -> Names:
    return Names(
        by_name={dialect.name: dialect for dialect in dialects},
        own_prefix=native.DOMAIN,
        resources=frozenset().union(*(dialect.resources for dialect in dialects)),
        inert_resources=frozenset().union(*(dialect.inert_resources for dialect in dialects)),
        vendor_resources=frozenset().union(*(dialect.vendor_resources for dialect in dialects)),
        uncounted_resources=frozenset().union(*(d.resources for d in dialects if not d.counts)),
        annotation_prefixes=tuple(p for dialect in dialects for p in dialect.annotation_prefixes),
        asking_annotations=tuple(p for dialect in dialects for p in dialect.asking_annotations),
        record_annotations=frozenset().union(*(dialect.record_annotations for dialect in dialects)),
        pod_labels=tuple(sorted({name for dialect in dialects for name in dialect.pod_labels})),
        group_labels=tuple(dialect.group_label for dialect in dialects if dialect.group_label),
    )


def dialect_names() -> tuple[str, ...]:
    """The names of all dialects."""
    return tuple(dialect.name for dialect in DIALECTS)


def served_by_default() -> tuple[str, ...]:
    """The dialects that an agent serves whose administrator does not choose."""
    return tuple(dialect.name for dialect in DIALECTS if dialect.served_by_default)


def demand(pod: pods.Pod, settings: contract.Settings) -> demands.PodDemand | None:
    """What the pod asks for; None if it asks for no card in any known dialect."""
    dialect = _spoken(pod)
    if dialect is None:
        return None
    native.fence(pod)  # raises for a level that does not exist
    asked_for = dialect.demand(_request(pod, dialect, settings))
    group = spread_group(pod)
    return msgspec.structs.replace(asked_for, spread_group=group) if group else asked_for


def spread_group(pod: pods.Pod) -> str:
    """The pods with which the pod shares no card; empty if it does not ask for that."""
    return spread_groups.of(pod, names().group_labels)


def warnings(pod: pods.Pod, settings: contract.Settings) -> tuple[contract.Caution, ...]:
    """What the user should know about a pod whose demand is allowed."""
    dialect = _spoken(pod)
    if dialect is None:
        return ()
    said = compute_policies.of_container(pod, {}).problems
    return (
        *dialect.warnings(_request(pod, dialect, settings)),
        *(contract.Caution(problem=problem) for problem in said),
    )


def implied(resources: Collection[str]) -> dict[str, int]:
    """What a container that names these resources asks for besides, in any family's words."""
    return {
        resource: amount
        for dialect in DIALECTS
        for resource, amount in dialect.implied(resources).items()
    }


def implied_in(pod: pods.Pod) -> dict[str, dict[str, int]]:
    """What containers ask for, in any family's words, because their pod says so elsewhere."""
    amounts: dict[str, dict[str, int]] = {}
    for dialect in DIALECTS:
        for container, implied in dialect.implied_in(pod).items():
            amounts.setdefault(container, {}).update(implied)
    return amounts


def asks_by_annotation(pod: pods.Pod) -> bool:
    """Whether an annotation of the pod asks for cards, whatever its containers name."""
    prefixes = names().asking_annotations
    return any(name.startswith(prefixes) for name in pod.metadata.annotations)


def measures() -> Mapping[str, contract.Measure]:
    """What each resource is in a claim, in all families' words."""
    return _measures(DIALECTS)


def provisioners() -> Mapping[str, contract.Provisioner]:
    """What the families give to claims, by the names by which classes ask for it."""
    return _provisioners(DIALECTS)


@functools.cache
def _measures(dialects: tuple[contract.Dialect, ...]) -> Mapping[str, contract.Measure]:
    return {name: measure for d in dialects for name, measure in d.measures.items()}


@functools.cache
def _provisioners(dialects: tuple[contract.Dialect, ...]) -> Mapping[str, contract.Provisioner]:
    given = [dialect.provisioner for dialect in dialects if dialect.provisioner is not None]
    return {name: provisioner for provisioner in given for name in provisioner.names}


def tolerated(pod: pods.Pod) -> tuple[nodes.Taint, ...]:
    """The taints that the pod tolerates because of what it asks for."""
    named = pods.resources(pod)
    taints = (
        mode.taint
        for dialect in DIALECTS
        for mode in dialect.modes
        if mode.taint is not None and not named.isdisjoint(dialect.resources.keys() - mode.withheld)
    )
    return tuple(dict.fromkeys(taints))


def node_taints(labels: Mapping[str, str]) -> tuple[nodes.Taint, ...]:
    """The taints that a node with these labels is to have, for pods of no family."""
    return tuple(dict.fromkeys(taint for d in DIALECTS for taint in d.taints(labels)))


def marks(
    grant: grants.Grant,
    pod: pods.Pod,
    node: cards.Node,
    *,
    now_ns: int,
    settings: contract.Settings,
) -> contract.Marks:
    """What is written on a pod that is bound with this grant."""
    bound = contract.Bound(grant=grant, pod=pod, node=node, now_ns=now_ns, settings=settings)
    own = _dialect(grant).marks(bound)
    return contract.Marks(
        {grant_record.GRANT: grant_record.encode(grant), **own.annotations}, own.labels
    )


def taken_over(pod: pods.Pod, node: cards.Node, settings: contract.Settings) -> grants.Grant | None:
    """The grant that the pod's original system recorded on it; None if there is no such record."""
    dialect = _spoken(pod)
    if dialect is None:
        return None
    grant = dialect.granted(_request(pod, dialect, settings), node)
    return None if grant is None else _in_group(grant, pod)


def on_cards(
    pod: pods.Pod,
    node: cards.Node,
    settings: contract.Settings,
    chosen: Mapping[str, Sequence[cards.Card]],
) -> grants.Grant | None:
    """The grant of a pod whose containers have these cards; None if it asks for none."""
    dialect = _spoken(pod)
    if dialect is None:
        return None
    request = _request(pod, dialect, settings)
    return _in_group(records.on_cards(request, node, dialect.demand(request), chosen), pod)


def assigned(grant: grants.Grant) -> dict[str, str]:
    """The annotations that change once the pod's containers have been given their cards."""
    return _dialect(grant).assigned()


def environment(
    grant: grants.Grant,
    container: grants.ContainerGrant,
    node: cards.Node,
    settings: contract.Settings,
) -> dict[str, str]:
    """What the family's programs expect to find in the container's environment."""
    start = contract.Start(grant=grant, container=container, node=node, settings=settings)
    return _dialect(grant).environment(start)


def offered(
    node: cards.Node, settings: contract.Settings, spoken: Collection[str]
) -> dict[str, int]:
    """How much of each resource a node with these cards offers in these dialects."""
    amounts: dict[str, int] = {}
    for dialect in _named(spoken):
        withheld = _withheld(dialect, node.traits)
        for resource, amount in dialect.offered(node, settings).items():
            if resource not in withheld:
                amounts[resource] = max(amount, amounts.get(resource, 0))
    return amounts


def reported(node: cards.Node, spoken: Collection[str]) -> dict[str, int]:
    """The amounts that these dialects write into the status of a node by themselves."""
    return {r: n for dialect in _named(spoken) for r, n in dialect.reported(node).items()}


def node_labels(
    node: cards.Node,
    labels: Mapping[str, str],
    settings: contract.Settings,
    served: Collection[str],
) -> dict[str, str]:
    """The labels that a node with these labels and cards should have, for people and tools."""
    written: dict[str, str] = {}
    for dialect in DIALECTS:
        described = contract.Described(
            node=node, labels=labels, settings=settings, served=dialect.name in served
        )
        written |= dialect.node_labels(described)
    if unit_resources(served):
        written[contract.UNIT_LABEL] = contract.unit_name(settings.memory_unit_mib)
    return written


def unit_resources(served: Collection[str]) -> tuple[str, ...]:
    """The resources of these dialects that are counted in the unit that the cluster chose."""
    return tuple(dialect.unit_resource for dialect in _named(served) if dialect.unit_resource)


class NodeUnit(msgspec.Struct, frozen=True):
    """The unit in which a node counts a resource."""

    resource: str
    unit_mib: int


def node_unit(node: nodes.Node) -> NodeUnit | None:
    """The unit in which the plugin of a node counts, by its numbers; None if they do not say."""
    for dialect in DIALECTS:
        unit_mib = dialect.unit_mib(node)
        if unit_mib is not None:
            return NodeUnit(dialect.unit_resource, unit_mib)
    return None


def counted_in_chosen_unit(grant: grants.Grant) -> bool:
    """Whether what the words of a grant mean depends on the unit that the cluster chose."""
    return bool(_dialect(grant).unit_resource)


def scheduler_name(resources: Collection[str]) -> str:
    """The schedulerName that pods with these resources should have; empty if any will do."""
    expected = (d.scheduler_name for d in DIALECTS if not d.resources.keys().isdisjoint(resources))
    return next(filter(None, expected), "")


def scheduler_names() -> tuple[str, ...]:
    """The names of schedulers that pods of some family are expected to name."""
    return tuple(dict.fromkeys(filter(None, (d.scheduler_name for d in DIALECTS))))


def fence(pod: pods.Pod) -> str:
    """The weakest fence that the pod accepts; empty if it does not say."""
    return native.fence(pod)


def container_compute(
    pod: pods.Pod, environment: Mapping[str, str], dialect: str
) -> compute_policies.OfContainer:
    """What a pod says of how compute is divided, for a container with this environment."""
    spoken = names().by_name.get(dialect, _OWN)
    return compute_policies.of_container(pod, environment, spoken.compute_variables)


def knows(resources: Collection[str]) -> bool:
    """Whether all these are resources of some dialect."""
    return names().resources.issuperset(resources)


def trimmed(pod: pods.Pod) -> pods.Pod:
    """The pod without annotations that no dialect reads; tenants write them, and we may keep it."""
    prefixes = names().annotation_prefixes
    kept = {
        name: text if len(text) <= _LONGEST_KEPT else text[:_LONGEST_SHOWN]
        for name, text in pod.metadata.annotations.items()
        if name.startswith(prefixes)
    }
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, annotations=kept)
    )


# Records of dozens of containers are shorter; what is cut stays unreadable.
_LONGEST_KEPT = 1 << 15
_LONGEST_SHOWN = 64


def settled(grant: grants.Grant, node: cards.Node) -> grants.Grant:
    """The grant as it is to be enforced, with what the node's labels decide filled in."""
    dialect = _dialect(grant)
    containers = tuple(_settled(c, dialect, node.traits) for c in grant.containers)
    return msgspec.structs.replace(grant, containers=containers)


def _spoken(pod: pods.Pod) -> contract.Dialect | None:
    named = pods.resources(pod)
    # Most pods name one family or none, and asking all families in turn takes eight times as long.
    candidates = (d for d in DIALECTS if d.asking_annotations or not named.isdisjoint(d.resources))
    speaking = [dialect for dialect in candidates if dialect.speaks(pod)]
    if len(speaking) > 1:
        raise _mixed(pod, *speaking[:2])
    return speaking[0] if speaking else None


def _mixed(pod: pods.Pod, first: contract.Dialect, second: contract.Dialect) -> errors.DemandError:
    """What to say of a pod that speaks two dialects."""
    also, field = _asking_field(pod, first), _asking_field(pod, second)
    if first.counts and second.counts:
        problem = "cards are asked for in another dialect, too"
        return errors.DemandError(field, problem, also=also, instead="use the names of one dialect")
    problem = "cards are asked for by a claim and by amounts"
    instead = "remove the amounts, which are the claim's, or the claim"
    return errors.DemandError(field, problem, also=also, instead=instead)


def _asking_field(pod: pods.Pod, dialect: contract.Dialect) -> str:
    """The first field by which a pod asks in a dialect that it speaks."""
    prefixes = dialect.asking_annotations
    annotations = (name for name in pod.metadata.annotations if name.startswith(prefixes))
    return rules.first_field(pod, dialect.resources) or rules.annotation_field(
        next(annotations, "")
    )


def _request(
    pod: pods.Pod, dialect: contract.Dialect, settings: contract.Settings
) -> contract.Request:
    return contract.Request(pod, rules.askings(pod, dialect.resources), settings)


def _in_group(grant: grants.Grant, pod: pods.Pod) -> grants.Grant:
    group = spread_group(pod)
    return msgspec.structs.replace(grant, spread_group=group) if group else grant


def _named(spoken: Collection[str]) -> Iterator[contract.Dialect]:
    return (dialect for dialect in DIALECTS if dialect.name in spoken)


def _dialect(grant: grants.Grant) -> contract.Dialect:
    """The grant's dialect; a grant that was not made from a pod speaks our own."""
    return names().by_name.get(grant.dialect, _OWN)


def _withheld(dialect: contract.Dialect, traits: frozenset[str]) -> frozenset[str]:
    """The resources of a family that a node with these traits does not offer."""
    rows = (mode.withheld for mode in dialect.modes if mode.trait in traits)
    return frozenset().union(*rows)


def _settled(
    container: grants.ContainerGrant, dialect: contract.Dialect, traits: frozenset[str]
) -> grants.ContainerGrant:
    rows = [mode for mode in dialect.modes if mode.trait in traits]
    advised = any(row.memory is modes.Memory.ADVICE for row in rows)
    enforced = container.memory_enforced and not advised
    mode, ceiling = container.compute_mode, container.compute_ceiling_percent
    if mode is demands.ComputeMode.NODE:
        named = (row.compute for row in rows if row.compute is not None)
        mode = next(named, demands.ComputeMode.BEST_EFFORT)
        ceiling = cards.FULL_PERCENT if mode is demands.ComputeMode.BURST else 0
    return msgspec.structs.replace(
        container,
        memory_enforced=enforced or native.ENFORCED in traits,
        compute_mode=mode,
        compute_ceiling_percent=ceiling,
    )
