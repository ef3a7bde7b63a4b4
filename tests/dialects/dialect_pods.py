"""Pods, nodes and grants for the tests of the dialects, as short as a table's cell."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from partage.core import cards, demands, errors, grants
from partage.core.placement import plans
from partage.dialects import contract, node_readings, pods, registry

SETTINGS = contract.Settings()
NOW_NS = 1_700_000_000_123_456_789
NODE = "node-a"

Limits = Mapping[str, pods.Amount]


def container(
    name: str,
    limits: Limits | None = None,
    *,
    requests: Limits | None = None,
    restart_policy: str = "",
) -> pods.Container:
    """A container with these amounts."""
    return pods.Container(name, pods.Resources(limits or {}, requests or {}), restart_policy)


def pod(
    *containers: pods.Container,
    init: tuple[pods.Container, ...] = (),
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    scheduler: str = "",
    node: str = "",
) -> pods.Pod:
    """A pod web in namespace lab."""
    return pods.Pod(
        pods.Metadata("web", "lab", "uid-1", annotations or {}, labels or {}),
        pods.Spec(containers, init, scheduler, node),
    )


def single(
    limits: Limits,
    *,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> pods.Pod:
    """A pod of one container named main."""
    return pod(container("main", limits), annotations=annotations, labels=labels)


def node(*memory_mib: int, labels: Mapping[str, str] | None = None, name: str = NODE) -> cards.Node:
    """A node with cards GPU-0, GPU-1, … of these sizes."""
    return cards.Node(
        name=name,
        cards=tuple(
            cards.Card(uuid=f"GPU-{i}", index=i, memory_mib=size)
            for i, size in enumerate(memory_mib)
        ),
        traits=node_readings.traits(labels or {}),
    )


def demand(pod: pods.Pod, settings: contract.Settings = SETTINGS) -> demands.PodDemand:
    """What the pod asks for; it must ask for something."""
    read = registry.demand(pod, settings)
    assert read is not None
    return read


def refusal(pod: pods.Pod) -> errors.DemandError:
    """The error with which the pod is refused."""
    with pytest.raises(errors.DemandError) as caught:
        registry.demand(pod, SETTINGS)
    return caught.value


def grant(
    pod: pods.Pod,
    where: cards.Node,
    *indexes: int,
    settings: contract.Settings = SETTINGS,
) -> grants.Grant:
    """What the pod asks for, with every container on these cards."""
    pod_demand = demand(pod, settings)
    return grants.Grant(
        pod=pod.identity,
        node=where.name,
        containers=tuple(_granted(c, where, indexes) for c in pod_demand.containers),
        dialect=pod_demand.dialect,
        qos=pod_demand.qos,
        tag=pod_demand.tag,
        exclusive_node=pod_demand.exclusive_node,
    )


def marks(
    given: grants.Grant,
    pod: pods.Pod,
    where: cards.Node,
    settings: contract.Settings = SETTINGS,
) -> contract.Marks:
    """What is written on the pod."""
    return registry.marks(given, pod, where, now_ns=NOW_NS, settings=settings)


def bound(pod: pods.Pod, annotations: Mapping[str, str], where: str = NODE) -> pods.Pod:
    """The same pod after it was bound, with these annotations on top of its own."""
    replace = msgspec.structs.replace
    merged = {**pod.metadata.annotations, **annotations}
    return pods.Pod(replace(pod.metadata, annotations=merged), replace(pod.spec, node_name=where))


def _granted(
    container: demands.ContainerDemand, where: cards.Node, indexes: tuple[int, ...]
) -> grants.ContainerGrant:
    part = plans.Part(container.demand)
    return grants.ContainerGrant(
        name=container.name,
        role=container.role,
        shares=tuple(
            grants.Share(
                uuid=card.uuid,
                index=card.index,
                memory_mib=part.memory_mib(card.memory_mib),
                compute_percent=part.compute_percent,
                exclusive=part.whole,
            )
            for card in (where.cards[i] for i in indexes)
        ),
        compute_ceiling_percent=container.demand.compute_ceiling_percent,
        compute_mode=container.demand.compute_mode,
        memory_enforced=container.demand.memory_enforced,
        elastic_gpu="egpu-1" if container.demand.claim else msgspec.UNSET,
    )
