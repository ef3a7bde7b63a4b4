"""Partage's own words, for those who start afresh.

A container names what it wants of each card (memory in MiB or percent, percent of compute) and of
how many cards, which is one if it does not say; a number of cards and nothing else means whole
cards. What concerns the whole pod (which models, which quality of service, which policy) is an
annotation.

Some annotations are for pods of every dialect: the weakest fence that they accept, that pods of one
owner want different cards, and what they may say of how compute is divided
(:mod:`partage.dialects.compute_policies`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import msgspec

from partage.core import cards, demands, errors
from partage.dialects import (
    compute_policies,
    contract,
    grant_record,
    modes,
    pod_claims,
    pods,
    rules,
    spread_groups,
)

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

DOMAIN = "partage.dev/"
_ANNOTATIONS = (
    *(CARDS, MODELS, UUIDS, QOS, CEILING, POLICY, FENCE, spread_groups.SPREAD),
    *(compute_policies.POLICY, compute_policies.WEIGHT),
)
FENCES = ("driver", "mps", "hook", "advisory")  # from the strongest

ENFORCED_LABEL = "partage.dev/memory"
ENFORCED = "partage/memory-enforced"
_SHARES = frozenset({MEMORY, PERCENT, COMPUTE})  # what a container can have of a card
_NOT = "!"
_TENANTS = 256  # of one card, as many as the fence has seats for


class Native(contract.Dialect):
    """Partage's own resources and annotations."""

    name = "partage"
    resources: ClassVar = {
        CARDS: rules.CARDS,
        MEMORY: rules.units("MiB"),
        PERCENT: rules.PERCENT,
        COMPUTE: rules.PERCENT,
    }
    annotation_prefixes = (DOMAIN,)
    asking_annotations = (CARDS,)
    measures: ClassVar = {
        CARDS: contract.CARDS,
        MEMORY: contract.memory(1),
        COMPUTE: contract.COMPUTE,
    }
    record_annotations = frozenset(grant_record.MARKS)
    modes = (
        modes.Mode(
            labels=(ENFORCED_LABEL,),
            values=("enforced",),
            trait=ENFORCED,
            memory=modes.Memory.ENFORCED,
            note="also what other labels or families make advice",
        ),
        *(
            modes.Mode(
                labels=(compute_policies.POLICY,),
                values=(str(policy),),
                trait=f"partage/compute-{policy}",
                policy=policy,
                note="for pods of every family",
            )
            for policy in compute_policies.Policy
        ),
    )

    def speaks(self, pod: pods.Pod) -> bool:
        if CARDS in pod.metadata.annotations:
            return True
        return any(map(_own, pods.resources(pod)))

    def offered(self, node: cards.Node, _settings: contract.Settings) -> dict[str, int]:
        percents = contract.percents(node)
        return {
            # A container may ask for a share of so many cards, so this counts seats, not cards.
            CARDS: _TENANTS * len(node.cards),
            PERCENT: percents,
            COMPUTE: percents,
        }

    def reported(self, node: cards.Node) -> dict[str, int]:
        # A plugin needs an ID for every MiB, which makes a kubelet slow and its messages too long.
        return {MEMORY: contract.units(node, 1)}

    def implied(self, resources: Collection[str]) -> dict[str, int]:
        shared = not _SHARES.isdisjoint(resources)
        return {CARDS: 1} if shared and CARDS not in resources else {}

    def demand(self, request: contract.Request) -> demands.PodDemand:
        _check_names(request.pod)
        if not request.askings:
            instead = f"name {CARDS}: 1, or a share, in the limits of a container"
            raise rules.annotation_error(CARDS, "no container asks for a card", instead=instead)
        wishes = _wishes(request)
        return demands.PodDemand(
            containers=contract.containers(request, lambda asking: _demand(asking, wishes)),
            qos=wishes.qos,
            dialect=self.name,
            nodes_by=wishes.policy,
            cards_by=wishes.policy,
        )


def _own(resource: str) -> bool:
    """Whether a resource is of our domain, known or not; a claim is another dialect's word."""
    return resource.startswith(DOMAIN) and resource != pod_claims.CLAIM


def _own_fields(pod: pods.Pod) -> dict[str, str]:
    """Where the pod names resources of our domain: the field of each, by its name."""
    return {
        resource: f"{spot.path}.resources.{kind}[{resource}]"
        for spot in pods.spots(pod)
        for kind, amounts in (
            ("limits", spot.container.resources.limits),
            ("requests", spot.container.resources.requests),
        )
        for resource in amounts
        if _own(resource)
    }


def _check_names(pod: pods.Pod) -> None:
    """A slip in a name of our own must not pass for something else, or for nothing."""
    for resource, field in _own_fields(pod).items():
        if resource not in Native.resources:
            instead = "write " + " or ".join(Native.resources)
            raise errors.DemandError(field, "there is no such resource", instead=instead)
    for annotation in pod.metadata.annotations:
        if annotation.startswith(DOMAIN) and annotation not in (*_ANNOTATIONS, *grant_record.MARKS):
            instead = "write " + " or ".join(_ANNOTATIONS)
            raise rules.annotation_error(annotation, "there is no such annotation", instead=instead)


def fence(pod: pods.Pod) -> str:
    """The weakest fence that the pod wants to be behind; empty if it does not say."""
    return rules.annotation_choice(pod, FENCE, FENCES)


class _Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the annotations say about the whole pod."""

    every_card: bool
    qos: demands.Qos
    ceiling: int
    policy: str
    restrictions: dict[str, tuple[str, ...]]


def _wishes(request: contract.Request) -> _Wishes:
    pod = request.pod
    ceiling = rules.annotation_number(pod, CEILING, rules.PERCENT) or 0
    if ceiling and not any(asking.get(COMPUTE) for asking in request.askings):
        problem = "no container asks for a share of compute"
        raise rules.annotation_error(CEILING, problem, instead=f"add {COMPUTE} to a container")
    qos = rules.annotation_choice(pod, QOS, tuple(demands.Qos))
    return _Wishes(
        every_card=bool(rules.annotation_choice(pod, CARDS, ("all",))),
        qos=demands.Qos(qos or demands.Qos.NORMAL),
        ceiling=ceiling,
        policy=rules.annotation_choice(pod, POLICY, request.settings.policies),
        restrictions=_restrictions(pod),
    )


def _restrictions(pod: pods.Pod) -> dict[str, tuple[str, ...]]:
    models, uuids = rules.annotation_words(pod, MODELS), rules.annotation_words(pod, UUIDS)
    return {
        "models": tuple(word for word in models if not word.startswith(_NOT)),
        "not_models": tuple(word[1:] for word in models if word.startswith(_NOT)),
        "uuids": tuple(word for word in uuids if not word.startswith(_NOT)),
        "not_uuids": tuple(word[1:] for word in uuids if word.startswith(_NOT)),
    }


def _demand(asking: rules.Asking, wishes: _Wishes) -> demands.Demand:
    if asking.get(MEMORY) and asking.get(PERCENT):
        problem = f"memory is also asked for in MiB ({MEMORY})"
        raise asking.refused(PERCENT, problem, instead="name one of the two")
    if wishes.every_card and asking.get(CARDS) > 1:
        problem = f"the annotation {CARDS} asks for all cards"
        raise asking.refused(CARDS, problem, instead="write 1, or remove the annotation")
    if asking.amounts.keys() == {MEMORY}:
        # The kubelet asks the node's agent by a resource that has a plugin, and this one has none:
        # the container would start without a card.
        problem = f"it needs {CARDS} beside it"
        raise asking.refused(MEMORY, problem, instead=f"add {CARDS}: 1")
    count = demands.ALL_CARDS if wishes.every_card else asking.get(CARDS) or 1
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


def _compute(asking: rules.Asking, wishes: _Wishes) -> dict[str, Any]:
    """How a share of compute is held."""
    share, ceiling = asking.get(COMPUTE), wishes.ceiling
    if wishes.qos is demands.Qos.ONLINE:
        problem = "the compute of online pods is not limited"
        raise asking.refused(COMPUTE, problem, instead=f"remove it, or the annotation {QOS}")
    if not ceiling:
        return {"compute_mode": demands.ComputeMode.FIXED}
    if ceiling < share:
        problem = f"the ceiling {ceiling} is below {share}, which {asking.path} asks for"
        raise rules.annotation_error(CEILING, problem, instead=f"write {share} to 100")
    return {"compute_mode": demands.ComputeMode.BURST, "compute_ceiling_percent": ceiling}
