"""Card objects: what `kubectl get gpu` shows of a node's cards, as a pure function of its state.

An object changes when its card's tenants or health change, and with nothing else. So holds are left
out, which come and go with every attempt to place a pod, and what foreign processes use, which is a
load: ``allocatable`` is what the grants leave of the card.

What an ElasticGPU has is listed once, under its own key, whether a pod uses it or not. A pod that
uses it is listed as well, without amounts, since the amounts are those of the ElasticGPU.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping

import msgspec

from partage.core import cards, demands, grants
from partage.core.placement import rooms
from partage.dialects import nodes, pods

CORE = "elasticgpu.io/gpu-core"  # percent of a card's time
MEMORY = "elasticgpu.io/gpu-memory"  # MiB
NODE_LABEL = "elasticgpu.io/node"
MANAGER_LABEL = "app.kubernetes.io/managed-by"
MANAGER = "partage"

_ELASTIC_GPU = "elasticgpu/"  # followed by its name: whose grant it is, where a pod has its uid
_MIB = 1 << 20
_LONGEST_LABEL = 63  # characters of a label's value; names of nodes may be longer
_NOTHING = grants.Taking()

Resource = Mapping[str, pods.Amount]


class Container(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one container has of the card."""

    container: str = ""
    resource: Resource = {}
    elastic_gpu: str = msgspec.field(default="", name="elasticGPU")  # whose shares these are


class Tenant(msgspec.Struct, frozen=True):
    """A pod, or an ElasticGPU that has a share without one."""

    namespace: str = ""
    pod: str = ""
    containers: tuple[Container, ...] = ()


class Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the card is."""

    index: int = -1
    uuid: str = ""
    model: str = ""
    path: str = ""
    memory: int = 0  # bytes
    node_name: str = ""


class Status(msgspec.Struct, frozen=True):
    """How it is, and who has it."""

    state: str = ""
    capacity: Resource = {}
    allocatable: Resource = {}
    allocated: Mapping[str, Tenant] = {}  # by uid of the pod
    tenants: int = 0  # pods, and ElasticGPUs that no pod uses


class CardObject(msgspec.Struct, frozen=True):
    """All of an object that Partage writes."""

    name: str
    labels: Mapping[str, str]
    spec: Spec
    status: Status

    @property
    def digest(self) -> bytes:
        """Equal for equal objects: the contents of 40,000 are not kept, to compare with later."""
        return digest(self.labels, self.spec, self.status)


def digest(labels: Mapping[str, str], spec: Spec, status: Status) -> bytes:
    """A fingerprint of all that is written on an object."""
    own = [labels.get(NODE_LABEL, ""), labels.get(MANAGER_LABEL, "")]
    content = msgspec.json.encode((own, spec, status), order="deterministic")
    return hashlib.blake2b(content, digest_size=16).digest()


def name(node: str, index: int) -> str:
    """What the object of a card is called."""
    return f"{node}-{index:02d}"


def node_of(name: str) -> str:
    """The node whose card is called so."""
    return name.rpartition("-")[0]


def of_node(state: rooms.NodeState, held: Collection[str]) -> Iterator[CardObject]:
    """The objects of a node's cards; ``held`` are the pods whose grants are not bound yet."""
    tenants = _tenants(state, held)
    reserved = _reserved(state, held)
    for room in state.rooms:
        uuid = room.card.uuid
        taken = _taken(state.uses.get(uuid), reserved.get(uuid, _NOTHING))
        yield CardObject(
            name=name(state.node.name, room.card.index),
            labels=_labels(state.node.name),
            spec=_spec(room.card, state.node.name),
            status=_status(room, taken, tenants.get(uuid, {})),
        )


def _labels(node: str) -> dict[str, str]:
    labels = {MANAGER_LABEL: MANAGER}
    return {**labels, NODE_LABEL: node} if len(node) <= _LONGEST_LABEL else labels


def _spec(card: cards.Card, node: str) -> Spec:
    return Spec(
        index=card.index,
        uuid="" if nodes.unnamed(card) else card.uuid,
        model=card.model,
        path="" if card.minor is None else f"/dev/nvidia{card.minor}",
        memory=card.memory_mib * _MIB,
        node_name=node,
    )


def _status(room: rooms.Room, taken: grants.Taking, tenants: Mapping[str, Tenant]) -> Status:
    capacity = {CORE: str(cards.FULL_PERCENT)}
    if room.card.memory_mib:  # of some cards only the number is known
        capacity[MEMORY] = str(room.card.memory_mib)
    closed = taken.exclusive or room.cordoned or not room.card.healthy
    free = {
        CORE: 0 if closed else max(0, cards.FULL_PERCENT - taken.compute_percent),
        MEMORY: 0 if closed else max(0, room.card.memory_mib - taken.memory_mib),
    }
    return Status(
        state=_state(room),
        capacity=capacity,
        allocatable={resource: str(free[resource]) for resource in capacity},
        allocated=tenants,
        tenants=len(tenants) - len(_elastic_gpus_in_use(tenants)),
    )


def _elastic_gpus_in_use(tenants: Mapping[str, Tenant]) -> set[str]:
    rows = (row for tenant in tenants.values() for row in tenant.containers)
    keys = {f"{_ELASTIC_GPU}{row.elastic_gpu}" for row in rows if row.elastic_gpu}
    return keys & tenants.keys()


def _state(room: rooms.Room) -> str:
    if not room.card.healthy:
        return "Unhealthy"
    return "Cordoned" if room.cordoned else "Healthy"


def _taken(use: rooms.Use | None, reserved: grants.Taking) -> grants.Taking:
    """What grants take of a card, without those that are only held."""
    if use is None:
        return _NOTHING
    return grants.Taking(
        use.memory_mib - reserved.memory_mib,
        use.compute_percent - reserved.compute_percent,
        exclusive=use.exclusive > reserved.exclusive,
    )


def _reserved(state: rooms.NodeState, held: Collection[str]) -> dict[str, grants.Taking]:
    """What holds take, by card; two holds of one whole card cannot be."""
    sums: dict[str, grants.Taking] = {}
    for grant in (state.grants[uid] for uid in held):
        offline = grant.qos is demands.Qos.OFFLINE
        for uuid, taking in grants.takings(grant).items():
            before = sums.get(uuid, _NOTHING)
            sums[uuid] = grants.Taking(
                before.memory_mib + taking.memory_mib,
                before.compute_percent + (0 if offline else taking.compute_percent),
                exclusive=before.exclusive or taking.exclusive,
            )
    return sums


def _tenants(state: rooms.NodeState, held: Collection[str]) -> dict[str, dict[str, Tenant]]:
    """Who has something of each card, by uuid and by uid."""
    tenants: dict[str, dict[str, Tenant]] = {}
    for uid, grant in state.grants.items():
        if uid in held:
            continue
        for uuid, containers in _by_card(grant).items():
            pod = grant.pod
            tenants.setdefault(uuid, {})[uid] = Tenant(pod.namespace, pod.name, tuple(containers))
    return tenants


def _by_card(grant: grants.Grant) -> dict[str, list[Container]]:
    containers: dict[str, list[Container]] = {}
    for container in grant.containers:
        for share in container.shares:
            row = Container(container.name, *_amounts(container, share))
            containers.setdefault(share.uuid, []).append(row)
    return containers


def _amounts(container: grants.ContainerGrant, share: grants.Share) -> tuple[Resource, str]:
    """What a share comes to, and the ElasticGPU with which it is counted instead."""
    if container.elastic_gpu:
        return {}, container.elastic_gpu
    if share.exclusive:
        return {CORE: str(cards.FULL_PERCENT)}, ""
    amounts = {CORE: share.compute_percent, MEMORY: share.memory_mib}
    return {resource: str(amount) for resource, amount in amounts.items() if amount}, ""
