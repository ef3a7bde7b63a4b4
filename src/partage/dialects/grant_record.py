"""The record of a grant on its pod, the same for every dialect.

The grant is versioned JSON in one annotation; the families' own annotations beside it are for the
families' tools. It names the pod's uid and the node, because people copy manifests with all their
annotations, and a copied grant is not a grant.
"""

from __future__ import annotations

import msgspec

from partage.core import cards, demands, grants
from partage.core.placement import plans
from partage.dialects import pods, records, rules, spread_groups

GRANT = "partage.dev/grant"
LOOKED_AT = "partage.dev/looked-at"  # when the extender made sure what became of a pod
MARKS = (GRANT, LOOKED_AT)  # what Partage writes on pods of every dialect
VERSION = 1
_MOST_MIB = 1 << 32


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Version 1. A field may be added with a default; any other change is a new version."""

    version: int
    uid: str
    node: str
    dialect: str
    containers: tuple[grants.ContainerGrant, ...]
    qos: demands.Qos
    tag: str
    exclusive_node: bool
    policy: str
    spread_group: str | msgspec.UnsetType = msgspec.UNSET


def encode(grant: grants.Grant) -> str:
    """The grant as the text of its annotation."""
    record = Record(
        version=VERSION,
        uid=grant.pod.uid,
        node=grant.node,
        dialect=grant.dialect,
        containers=grant.containers,
        qos=grant.qos,
        tag=grant.tag,
        exclusive_node=grant.exclusive_node,
        policy=grant.policy,
        spread_group=grant.spread_group or msgspec.UNSET,
    )
    return msgspec.json.encode(record).decode()


def decode(pod: pods.Pod, node: cards.Node) -> grants.Grant | None:
    """The grant recorded on a pod; None if there is no record.

    Whether the node has its cards is not asked here.
    """
    if GRANT not in pod.metadata.annotations:
        return None
    record = read(records.text(pod, GRANT))
    _check(record, pod, node)
    return as_grant(record, pod.identity)


def read(text: str) -> Record:
    """The record that a text is, whosesoever it is; its shares are checked."""
    version = records.decoded(GRANT, text, _Version).version
    if version != VERSION:
        problem = (
            f"its version is {rules.shown(str(version))}, but only version {VERSION} is supported"
        )
        raise records.Unreadable(GRANT, problem, instead="upgrade Partage")
    record = records.decoded(GRANT, text, Record)
    for container in record.containers:
        _check_container(container)
    return record


def version(text: str) -> int | None:
    """The version that a record says it has; None if it says none that can be read."""
    try:
        return records.decoded(GRANT, text[: records.MOST_TEXT], _Version).version
    except records.Unreadable:
        return None


def as_grant(record: Record, owner: grants.Pod) -> grants.Grant:
    """The grant of a record that is its owner's."""
    return grants.Grant(
        pod=owner,
        node=record.node,
        containers=record.containers,
        dialect=record.dialect,
        qos=record.qos,
        tag=record.tag,
        exclusive_node=record.exclusive_node,
        policy=record.policy,
        spread_group=record.spread_group or "",
    )


def compare(grant: grants.Grant, demand: demands.PodDemand, node: cards.Node) -> None:
    """Check that a recorded grant is what the pod asks for: the owner of a pod can edit both.

    Otherwise tenants could write themselves a smaller share, and the card would be oversubscribed
    after a restart, or a larger one, and keep others away. A share of a card that shrank since may
    be larger than asked. The group is the record's: a pod may have lost its owner since, or got
    another, and is on the cards on which its group was kept apart. What a container has by a claim
    is compared with the claim's object, where that is known.
    """
    sizes = {card.uuid: card.memory_mib for card in node.cards}
    facts = (grant.qos, grant.tag, grant.exclusive_node, [c.name for c in grant.containers])
    expected = (demand.qos, demand.tag, demand.exclusive_node, [c.name for c in demand.containers])
    if facts != expected:
        raise records.Unreadable(GRANT, "it differs from what the pod asks for")
    for given, container in zip(grant.containers, demand.containers, strict=True):
        if bool(given.elastic_gpu) != bool(container.demand.claim):
            way = (
                "by amounts, not by a claim" if given.elastic_gpu else "by a claim, not by amounts"
            )
            problem = f"container {rules.shown(given.name)} asks for cards {way}"
            raise records.Unreadable(GRANT, problem)
        if given.elastic_gpu:
            continue  # the shares are those of the claim's object, which has a grant of its own
        part = plans.Part(container.demand)
        wrong_count = container.demand.cards not in (demands.ALL_CARDS, len(given.shares))
        if wrong_count or not all(_as_asked(share, part, sizes) for share in given.shares):
            problem = f"container {rules.shown(given.name)} asks for something else"
            raise records.Unreadable(GRANT, problem)


def _as_asked(share: grants.Share, part: plans.Part, sizes: dict[str, int]) -> bool:
    if share.exclusive != part.whole or share.compute_percent != part.compute_percent:
        return False
    if part.fixed_mib is not None:
        return share.memory_mib == part.fixed_mib
    if part.whole and not share.memory_mib:
        return True  # when it was granted, nobody knew how much memory the card has
    return share.memory_mib >= part.memory_mib(sizes.get(share.uuid, 0))


class _Version(msgspec.Struct):
    """What every version of the record has."""

    version: int


def _check(record: Record, pod: pods.Pod, node: cards.Node) -> None:
    if record.uid != pod.metadata.uid:
        raise records.Unreadable(GRANT, f"it belongs to another pod, {rules.shown(record.uid)}")
    if record.node != node.name:
        raise records.Unreadable(GRANT, f"it is for another node, {rules.shown(record.node)}")
    if record.spread_group and not spread_groups.sound(record.spread_group, pod):
        raise records.Unreadable(GRANT, "its group is not one of the pod's namespace")
    roles = {spot.container.name: spot.role for spot in pods.spots(pod)}
    granted = [(container.name, container.role) for container in record.containers]
    if len(set(granted)) != len(granted) or not set(granted) <= set(roles.items()):
        raise records.Unreadable(GRANT, "its containers are not those of the pod")


def _check_container(container: grants.ContainerGrant) -> None:
    uuids = [share.uuid for share in container.shares]
    if not all(map(_sound, container.shares)) or len(set(uuids)) != len(uuids) or not uuids:
        problem = f"the shares of {rules.shown(container.name)} are out of range"
        raise records.Unreadable(GRANT, problem)
    if not 0 <= container.compute_ceiling_percent <= cards.FULL_PERCENT:
        problem = f"the ceiling of {rules.shown(container.name)} is out of range"
        raise records.Unreadable(GRANT, problem)


def _sound(share: grants.Share) -> bool:
    return (
        0 < len(share.uuid) <= rules.LONGEST_WORD
        and 0 <= share.index < records.MOST_CARDS
        and 0 <= share.memory_mib <= _MOST_MIB
        and 0 <= share.compute_percent <= cards.FULL_PERCENT
    )
