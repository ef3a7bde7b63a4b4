"""Grants: what was given, and what that takes from each card.

A Grant is the only record of truth: in a cluster it travels in the pod's annotation, on one machine
it is a row of the ledger. Everything else (what is free, which pods are where) is computed from
grants, so a process that starts anew knows as much as the one that was killed.

Containers of a pod do not all run at once. :func:`takings` says what a grant takes at its worst
moment on each card: init containers run one after another, each beside the sidecars that started
before it, and all of that before the apps run beside all sidecars. A container that has its shares
by a claim takes nothing: the claim's object has a grant of its own, whether or not a pod uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from partage.core import demands


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of one card."""

    uuid: str
    index: int
    memory_mib: int
    compute_percent: int = 0
    exclusive: bool = False


class ContainerGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of one container."""

    name: str
    shares: tuple[Share, ...]
    role: demands.Role = demands.Role.APP
    compute_ceiling_percent: int = 0
    compute_mode: demands.ComputeMode = demands.ComputeMode.BEST_EFFORT
    memory_enforced: bool = True
    fence: str = ""  # the level in force, once the container was started; "none": it needs none
    # The object whose shares these are, if the container has them by a claim: that has a grant of
    # its own, with which they are counted.
    elastic_gpu: str | msgspec.UnsetType = msgspec.UNSET


class Pod(msgspec.Struct, frozen=True):
    """Whose grant it is; ``uid`` alone decides, names are for people."""

    uid: str
    namespace: str = "default"
    name: str = ""


def elastic_gpu_uid(name: str) -> str:
    """What stands in place of a pod's uid in the grant of an ElasticGPU."""
    return f"{OF_ELASTIC_GPU}{name}"


OF_ELASTIC_GPU = "elasticgpu/"


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The shares given to each container of one pod on one node."""

    pod: Pod
    node: str
    containers: tuple[ContainerGrant, ...]
    dialect: str = ""
    qos: demands.Qos = demands.Qos.NORMAL
    tag: str = ""
    exclusive_node: bool = False
    policy: str = ""
    spread_group: str = ""  # of pods that are on different cards


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """Annotations that say a pod has cards, but not readably which.

    It is a value: such a pod runs and holds memory, so it has to be counted (as the worst case on
    its node) and shown, never skipped.
    """

    field: str
    problem: str
    instead: str

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}; {self.instead}"


class Taking(msgspec.Struct, frozen=True):
    """What a pod takes from one card at its worst moment, each dimension by itself."""

    memory_mib: int = 0
    compute_percent: int = 0
    tenants: int = 0
    exclusive: bool = False


def takings(grant: Grant) -> dict[str, Taking]:
    """What the grant takes, by uuid of the card."""
    roles = [container.role for container in grant.containers]
    result: dict[str, Taking] = {}
    for moment in moments(roles):
        for uuid, taking in _at(grant.containers[i] for i in moment):
            result[uuid] = _larger(result[uuid], taking) if uuid in result else taking
    return result


def claimed_takings(grant: Grant) -> dict[str, dict[str, Taking]]:
    """What the pod's containers have by claims, by ElasticGPU and card.

    Pods that share an ElasticGPU have it together: who adds them up counts each name once.
    """
    return {
        container.elastic_gpu: dict(
            _at([msgspec.structs.replace(container, elastic_gpu=msgspec.UNSET)])
        )
        for container in grant.containers
        if container.elastic_gpu
    }


def stand_in(grant: Grant, elastic_gpu: str) -> Grant:
    """The grant of an ElasticGPU, as far as a pod that has its shares knows it."""
    container = next(c for c in grant.containers if c.elastic_gpu == elastic_gpu)
    own = msgspec.structs.replace(container, name="", role=demands.Role.APP)
    return Grant(
        pod=Pod(elastic_gpu_uid(elastic_gpu), grant.pod.namespace, elastic_gpu),
        node=grant.node,
        containers=(msgspec.structs.replace(own, elastic_gpu=msgspec.UNSET),),
        dialect=grant.dialect,
    )


def uuids(grant: Grant) -> set[str]:
    """The cards on which the pod's containers are, those that they have by claims too."""
    return {share.uuid for container in grant.containers for share in container.shares}


def moments(roles: list[demands.Role]) -> list[list[int]]:
    """Which containers (by position) run at the same time, one list for each moment of a pod."""
    steady = [i for i, role in enumerate(roles) if role is not demands.Role.INIT]
    result = [steady] if steady else []
    for i, role in enumerate(roles):
        if role is demands.Role.INIT:
            before = [j for j in range(i) if roles[j] is demands.Role.SIDECAR]
            result.append([*before, i])
    return result


def _at(containers: Iterable[ContainerGrant]) -> Iterator[tuple[str, Taking]]:
    sums: dict[str, Taking] = {}
    own = (container for container in containers if not container.elastic_gpu)
    for share in (share for container in own for share in container.shares):
        held = sums.get(share.uuid, Taking())
        sums[share.uuid] = Taking(
            held.memory_mib + share.memory_mib,
            held.compute_percent + share.compute_percent,
            held.tenants + 1,
            held.exclusive or share.exclusive,
        )
    return iter(sums.items())


def _larger(first: Taking, second: Taking) -> Taking:
    return Taking(
        max(first.memory_mib, second.memory_mib),
        max(first.compute_percent, second.compute_percent),
        max(first.tenants, second.tenants),
        first.exclusive or second.exclusive,
    )
