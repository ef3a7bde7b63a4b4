"""Partage's own words, for those who start afresh, and its record of every grant.

A container names what it wants of each card (memory in MiB or percent, percent of compute) and of
how many cards; a number of cards and nothing else means whole cards. What concerns the whole pod
(which models, which quality of service, which policy) is an annotation.

The grant is recorded as versioned JSON in one annotation, for every dialect: the families' own
annotations beside it are for the families' tools. It names the pod's uid and the node, because
people copy manifests with all their annotations, and a copied grant is not a grant.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from partage.core import cards, demands, errors, grants, plans
from partage.dialects import base, pods, reading, records

CARDS = "partage.dev/cards"  # a resource, and an annotation whose only value is "all"
MEMORY = "partage.dev/memory-mib"
PERCENT = "partage.dev/memory-percent"
COMPUTE = "partage.dev/compute-percent"

MODELS = "partage.dev/models"
UUIDS = "partage.dev/uuids"
QOS = "partage.dev/qos"
CEILING = "partage.dev/compute-ceiling"
POLICY = "partage.dev/policy"
FENCE = "partage.dev/fence"  # the weakest fence that will do, for pods of every dialect
GRANT = "partage.dev/grant"
LOOKED_AT = "partage.dev/looked-at"  # when the extender made sure what became of a pod

DOMAIN = "partage.dev/"
_ANNOTATIONS = (CARDS, MODELS, UUIDS, QOS, CEILING, POLICY, FENCE)
_MARKS = (GRANT, LOOKED_AT)  # which Partage writes, on pods that may ask in its words
FENCES = ("driver", "mps", "hook", "advisory")  # from the strongest

ENFORCED_LABEL = "partage.dev/memory"
ENFORCED = "partage/memory-enforced"
VERSION = 1
_MOST_MIB = 1 << 32
_NOT = "!"
_TENANTS = 256  # of one card, as many as the fence has seats for


class Native(base.Dialect):
    """Partage's own resources and annotations."""

    name = "partage"
    resources: ClassVar = {
        CARDS: reading.CARDS,
        MEMORY: reading.units("MiB"),
        PERCENT: reading.PERCENT,
        COMPUTE: reading.PERCENT,
    }
    traits: ClassVar = {(ENFORCED_LABEL, "enforced"): ENFORCED}

    def speaks(self, pod: pods.Pod) -> bool:
        if CARDS in pod.metadata.annotations:
            return True
        return any(name.startswith(DOMAIN) for name in pods.resources(pod))

    def offered(self, node: cards.Node, _settings: base.Settings) -> dict[str, int]:
        percents = base.percents(node)
        return {
            # A container may ask for a share of so many cards, so this counts seats, not cards.
            CARDS: _TENANTS * len(node.cards),
            PERCENT: percents,
            COMPUTE: percents,
        }

    def reported(self, node: cards.Node) -> dict[str, int]:
        # A plugin needs an ID for every MiB, which makes a kubelet slow and its messages too long.
        return {MEMORY: base.units(node, 1)}

    def demand(self, request: base.Request) -> demands.PodDemand:
        _check_names(request.pod)
        if not request.askings:
            instead = f"name {CARDS}: 1, or a share, in the limits of a container"
            raise reading.annotation_error(CARDS, "no container asks for a card", instead=instead)
        wishes = _wishes(request)
        return demands.PodDemand(
            containers=base.containers(request, lambda asking: _demand(asking, wishes)),
            qos=wishes.qos,
            dialect=self.name,
            nodes_by=wishes.policy,
            cards_by=wishes.policy,
        )


def _own_fields(pod: pods.Pod) -> dict[str, str]:
    """Where the pod names resources of our domain: the place of each, by its name."""
    return {
        resource: f"{spot.path}.resources.{kind}[{resource}]"
        for spot in pods.spots(pod)
        for kind, amounts in (
            ("limits", spot.container.resources.limits),
            ("requests", spot.container.resources.requests),
        )
        for resource in amounts
        if resource.startswith(DOMAIN)
    }


def _check_names(pod: pods.Pod) -> None:
    """A slip in a name of our own must not pass for something else, or for nothing."""
    for resource, field in _own_fields(pod).items():
        if resource not in Native.resources:
            instead = "write " + " or ".join(Native.resources)
            raise errors.DemandError(field, "there is no such resource", instead=instead)
    for annotation in pod.metadata.annotations:
        if annotation.startswith(DOMAIN) and annotation not in (*_ANNOTATIONS, *_MARKS):
            instead = "write " + " or ".join(_ANNOTATIONS)
            raise reading.annotation_error(annotation, "there is no such word", instead=instead)


def fence(pod: pods.Pod) -> str:
    """The weakest fence that the pod wants to be behind; empty if it does not say."""
    return reading.annotation_choice(pod, FENCE, FENCES)


def encode(grant: grants.Grant) -> str:
    """The grant as the text of its annotation."""
    record = _Record(
        version=VERSION,
        uid=grant.pod.uid,
        node=grant.node,
        dialect=grant.dialect,
        containers=grant.containers,
        qos=grant.qos,
        tag=grant.tag,
        exclusive_node=grant.exclusive_node,
        policy=grant.policy,
    )
    return msgspec.json.encode(record).decode()


def decode(pod: pods.Pod, node: cards.Node) -> grants.Grant | None:
    """The grant recorded on a pod; None if there is no record.

    Whether the node has its cards is not asked here.
    """
    if GRANT not in pod.metadata.annotations:
        return None
    text = records.text(pod, GRANT)
    version = records.decoded(GRANT, text, _Version).version
    if version != VERSION:
        problem = f"its version is {reading.shown(str(version))}, and {VERSION} is known here"
        raise records.Unreadable(GRANT, problem, instead="upgrade this Partage")
    record = records.decoded(GRANT, text, _Record)
    _check(record, pod, node)
    return grants.Grant(
        pod=pod.identity,
        node=record.node,
        containers=record.containers,
        dialect=record.dialect,
        qos=record.qos,
        tag=record.tag,
        exclusive_node=record.exclusive_node,
        policy=record.policy,
    )


def compare(grant: grants.Grant, demand: demands.PodDemand, node: cards.Node) -> None:
    """Check that a recorded grant is what the pod asks for: whoever owns the pod can edit both.

    Without it a tenant could write himself a smaller share, and be oversold after a restart, or a
    larger one, and keep others away. A share of a card that shrank since may be larger than asked.
    """
    sizes = {card.uuid: card.memory_mib for card in node.cards}
    facts = (grant.qos, grant.tag, grant.exclusive_node, [c.name for c in grant.containers])
    asked = (demand.qos, demand.tag, demand.exclusive_node, [c.name for c in demand.containers])
    if facts != asked:
        raise records.Unreadable(GRANT, "it is not what the pod asks for")
    for given, container in zip(grant.containers, demand.containers, strict=True):
        part = plans.Part(container.demand)
        wrong_count = container.demand.cards not in (demands.ALL_CARDS, len(given.shares))
        if wrong_count or not all(_as_asked(share, part, sizes) for share in given.shares):
            problem = f"container {reading.shown(given.name)} asks for something else"
            raise records.Unreadable(GRANT, problem)


def _as_asked(share: grants.Share, part: plans.Part, sizes: dict[str, int]) -> bool:
    if share.exclusive != part.whole or share.compute_percent != part.compute_percent:
        return False
    if part.fixed_mib is not None:
        return share.memory_mib == part.fixed_mib
    return share.memory_mib >= part.memory_mib(sizes.get(share.uuid, 0))


class _Version(msgspec.Struct):
    """What every version of the record has."""

    version: int


class _Record(msgspec.Struct, frozen=True, kw_only=True):
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


def _check(record: _Record, pod: pods.Pod, node: cards.Node) -> None:
    if record.uid != pod.metadata.uid:
        raise records.Unreadable(GRANT, f"it is of another pod, {reading.shown(record.uid)}")
    if record.node != node.name:
        raise records.Unreadable(GRANT, f"it is for another node, {reading.shown(record.node)}")
    roles = {spot.container.name: spot.role for spot in pods.spots(pod)}
    granted = [(container.name, container.role) for container in record.containers]
    if len(set(granted)) != len(granted) or not set(granted) <= set(roles.items()):
        raise records.Unreadable(GRANT, "its containers are not those of the pod")
    for container in record.containers:
        uuids = [share.uuid for share in container.shares]
        if not all(map(_sound, container.shares)) or len(set(uuids)) != len(uuids) or not uuids:
            problem = f"the shares of {reading.shown(container.name)} are out of range"
            raise records.Unreadable(GRANT, problem)
        if not 0 <= container.compute_ceiling_percent <= cards.FULL_PERCENT:
            problem = f"the ceiling of {reading.shown(container.name)} is out of range"
            raise records.Unreadable(GRANT, problem)


def _sound(share: grants.Share) -> bool:
    return (
        0 < len(share.uuid) <= reading.LONGEST_WORD
        and 0 <= share.index < records.MOST_CARDS
        and 0 <= share.memory_mib <= _MOST_MIB
        and 0 <= share.compute_percent <= cards.FULL_PERCENT
    )


class _Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the annotations say about the whole pod."""

    every_card: bool
    qos: demands.Qos
    ceiling: int
    policy: str
    restrictions: dict[str, tuple[str, ...]]


def _wishes(request: base.Request) -> _Wishes:
    pod = request.pod
    ceiling = reading.annotation_number(pod, CEILING, reading.PERCENT) or 0
    if ceiling and not any(asking.get(COMPUTE) for asking in request.askings):
        problem = "no container asks for a share of compute"
        raise reading.annotation_error(CEILING, problem, instead=f"add {COMPUTE} to a container")
    qos = reading.annotation_choice(pod, QOS, tuple(demands.Qos))
    return _Wishes(
        every_card=bool(reading.annotation_choice(pod, CARDS, ("all",))),
        qos=demands.Qos(qos or demands.Qos.NORMAL),
        ceiling=ceiling,
        policy=reading.annotation_choice(pod, POLICY, request.settings.policies),
        restrictions=_restrictions(pod),
    )


def _restrictions(pod: pods.Pod) -> dict[str, tuple[str, ...]]:
    models, uuids = reading.annotation_words(pod, MODELS), reading.annotation_words(pod, UUIDS)
    return {
        "models": tuple(word for word in models if not word.startswith(_NOT)),
        "not_models": tuple(word[1:] for word in models if word.startswith(_NOT)),
        "uuids": tuple(word for word in uuids if not word.startswith(_NOT)),
        "not_uuids": tuple(word[1:] for word in uuids if word.startswith(_NOT)),
    }


def _demand(asking: reading.Asking, wishes: _Wishes) -> demands.Demand:
    if asking.get(MEMORY) and asking.get(PERCENT):
        problem = f"memory is also asked for in MiB ({MEMORY})"
        raise asking.refused(PERCENT, problem, instead="name one of the two")
    if wishes.every_card and asking.get(CARDS) > 1:
        problem = f"the annotation {CARDS} asks for all cards"
        raise asking.refused(CARDS, problem, instead="write 1, or take the annotation away")
    if not asking.get(CARDS):
        # It is by this resource that the kubelet asks the node's agent about the container.
        problem = f"{CARDS} is not named beside it"
        raise asking.refused(next(iter(asking.amounts)), problem, instead=f"add {CARDS}: 1")
    count = demands.ALL_CARDS if wishes.every_card else asking.get(CARDS)
    if asking.amounts.keys() == {CARDS}:
        demand = demands.Demand(cards=count, exclusive=demands.Exclusive.CARD)
    else:
        demand = demands.Demand(
            cards=count,
            memory_mib=asking.get(MEMORY),
            memory_percent=asking.get(PERCENT),
            compute_percent=asking.get(COMPUTE),
        )
    changes = _compute(asking, wishes) if demand.compute_percent else {}
    return msgspec.structs.replace(demand, **changes, **wishes.restrictions)


def _compute(asking: reading.Asking, wishes: _Wishes) -> dict[str, Any]:
    """How a share of compute is held."""
    share, ceiling = asking.get(COMPUTE), wishes.ceiling
    if wishes.qos is demands.Qos.ONLINE:
        problem = "online pods have all the compute they want"
        raise asking.refused(COMPUTE, problem, instead=f"take it or {QOS} away")
    if not ceiling:
        return {"compute_mode": demands.ComputeMode.FIXED}
    if ceiling < share:
        problem = f"the ceiling {ceiling} is below {share}, which {asking.path} asks for"
        raise reading.annotation_error(CEILING, problem, instead=f"write {share} to 100")
    return {"compute_mode": demands.ComputeMode.BURST, "compute_ceiling_percent": ceiling}
