"""An inspection: which pods have which cards, in all dialects, as a value to print in any form.

It is computed from a Mirror, from which the extender decides, too. So what is shown is what counts:
grants that were read exactly, and grants whose record is damaged, which count on every card they
may have and are marked. Missing data is a value: what is not known is None.

The names of the fields are those of Partage's own records, and stay.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Iterator

import msgspec

from partage.cli.commands.inspect import accelerator_rows
from partage.cli.display import json_objects
from partage.core import grants
from partage.core.placement.rooms import NodeState, Room, Use
from partage.core.problems import Problem
from partage.dialects import nodes
from partage.dialects.claims import objects
from partage.scheduler.claims import claim_store
from partage.scheduler.mirror import mirror


class Tenant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one pod has of one card, at its worst moment; or what a claim has, for any pod."""

    namespace: str
    pod: str  # or egpuc/<claim>, or egpu/<name> where no claim has it
    uid: str
    dialect: str | None
    containers: tuple[str, ...]
    qos: str
    memory_mib: int
    compute_percent: int
    exclusive: str  # no, card or node
    fence: str | None  # the level in force; several where containers differ
    worst_case: bool  # nothing readable says what the pod has
    measured_mib: int | None = None  # in use now, where an agent was asked
    used_by: tuple[str, ...] = ()  # the pods that have it by the claim


class Card(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One card; used and free add up to its memory, what is foreign is a part of what is used.

    All of that is None where only the number of a node's cards is known.
    """

    index: int
    uuid: str | None
    model: str | None
    healthy: bool
    memory_mib: int | None
    used_mib: int | None
    foreign_mib: int
    free_mib: int | None
    compute_percent: int  # granted, but for offline pods
    offline_percent: int
    foreign_percent: int
    tenants: tuple[Tenant, ...]
    measured_mib: int | None = None  # in use now, by all processes, where an agent was asked
    cordoned: bool = False  # nothing new lands there
    cordon_reason: str | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node that has cards, or was named by the user."""

    name: str
    address: str | None
    cards: tuple[Card, ...]


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace that has a total: what it has, and what it may have; None: what there is."""

    name: str
    cards: int  # of all its pods; a card that two pods share counts twice
    most_cards: int | None
    memory_mib: int
    most_memory_mib: int | None
    compute_percent: int
    most_compute_percent: int | None


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """All that is shown."""

    api_version: str = msgspec.field(default=json_objects.API_VERSION, name="apiVersion")
    kind: str = "Inspection"
    nodes: tuple[Node, ...]
    other_accelerators: tuple[accelerator_rows.Accelerators, ...]  # of other vendors
    namespaces: tuple[Namespace, ...] | None  # None: they were not read
    problems: tuple[Problem, ...]


def inspect(
    cluster_mirror: mirror.Mirror,
    *,
    named: str = "",
    others: tuple[accelerator_rows.Accelerators, ...] = (),
) -> Inspection:
    """The content of a mirror; nodes without cards are left out unless they are ``named``."""
    shown = (s for s in cluster_mirror.fleet.states() if s.rooms or s.uses or s.node.name == named)
    states = sorted(shown, key=lambda state: state.node.name)
    views = [_View(state, cluster_mirror) for state in states]
    listed = (Problem(what, text) for what, text in cluster_mirror.problems)
    computed = (problem for view in views for problem in view.problems())
    return Inspection(
        nodes=tuple(view.node() for view in views),
        other_accelerators=others,
        namespaces=_namespaces(cluster_mirror),
        problems=(*listed, *computed),
    )


def _namespaces(cluster_mirror: mirror.Mirror) -> tuple[Namespace, ...] | None:
    if not cluster_mirror.namespaces.read:
        return None
    limited = sorted(cluster_mirror.fleet.limited_namespaces(), key=operator.itemgetter(0))
    return tuple(
        Namespace(
            name=name,
            cards=account.used.cards,
            most_cards=account.total.cards,
            memory_mib=account.used.memory_mib,
            most_memory_mib=account.total.memory_mib,
            compute_percent=account.used.compute_percent,
            most_compute_percent=account.total.compute_percent,
        )
        for name, account in limited
    )


class _View:
    """One node, with its grants sorted by card."""

    def __init__(self, state: NodeState, cluster_mirror: mirror.Mirror) -> None:
        self._state = state
        self._tenants: dict[str, list[Tenant]] = collections.defaultdict(list)  # by uuid
        for grant in state.grants.values():
            guessed = cluster_mirror.pods.is_guessed(grant.pod.uid, grant.node)
            elastic_gpu = objects.owned_name(grant.pod.uid)
            users = claim_store.users(cluster_mirror.fleet, elastic_gpu) if elastic_gpu else ()
            for uuid, taking in grants.takings(grant).items():
                tenant = _tenant(grant, uuid, taking, worst_case=guessed, users=users)
                self._tenants[uuid].append(tenant)

    def node(self) -> Node:
        node = self._state.node
        return Node(
            name=node.name,
            address=node.address or None,
            cards=tuple(self._card(room) for room in self._state.rooms),
        )

    def problems(self) -> Iterator[Problem]:
        """Problems that show in the sums, and in no object by itself."""
        name = f"node {self._state.node.name}"
        for room in self._state.rooms:
            for text in _exceeded(room):
                yield Problem(name, f"card {room.card.index}: {text}{self._doubt(room)}")
        present = {room.card.uuid for room in self._state.rooms}
        for uuid in sorted(self._tenants.keys() - present):
            pods = ", ".join(f"{t.namespace}/{t.pod}" for t in self._tenants[uuid])
            yield Problem(name, f"card {uuid} is missing; it was granted to {pods}")

    def _card(self, room: Room) -> Card:
        card = room.card
        use = self._state.uses.get(card.uuid) or Use()
        sized = not card.whole_only
        return Card(
            index=card.index,
            uuid=None if nodes.unnamed(card) else card.uuid,
            model=card.model or None,
            healthy=card.healthy,
            memory_mib=card.memory_mib if sized else None,
            used_mib=card.memory_mib - room.free_mib if sized else None,
            foreign_mib=card.foreign_memory_mib,
            free_mib=room.free_mib if sized else None,
            compute_percent=use.compute_percent,
            offline_percent=use.offline_percent,
            foreign_percent=card.foreign_compute_percent,
            tenants=tuple(sorted(self._tenants[card.uuid], key=_NAMES)),
            cordoned=room.cordoned,
            cordon_reason=self._state.node.cordons.get(card.uuid) or None,
        )

    def _doubt(self, room: Room) -> str:
        doubted = any(tenant.worst_case for tenant in self._tenants[room.card.uuid])
        return "; a part of it is counted in the worst case" if doubted else ""


_NAMES = operator.attrgetter("namespace", "pod", "uid")


def _tenant(
    grant: grants.Grant,
    uuid: str,
    taking: grants.Taking,
    *,
    worst_case: bool,
    users: tuple[str, ...],
) -> Tenant:
    containers = [c for c in grant.containers if any(share.uuid == uuid for share in c.shares)]
    fences = sorted({c.fence for c in containers if c.fence})
    alone = "card" if taking.exclusive else "no"
    return Tenant(
        namespace=grant.pod.namespace,
        pod=_name(grant.pod),
        uid=grant.pod.uid,
        dialect=grant.dialect or None,
        containers=tuple(c.name for c in containers if c.name),
        qos=grant.qos.value,
        memory_mib=taking.memory_mib,
        compute_percent=taking.compute_percent,
        exclusive="node" if grant.exclusive_node else alone,
        fence=",".join(fences) or None,  # written down when containers have started
        worst_case=worst_case,
        used_by=users,
    )


def _name(owner: grants.Pod) -> str:
    """A pod's name; a claim's as kubectl takes it, of which there may be one of the same name."""
    if not objects.owned_name(owner.uid):
        return owner.name
    return f"egpuc/{owner.name}" if owner.namespace else f"egpu/{owner.name}"


def _exceeded(room: Room) -> Iterator[str]:
    if room.free_mib < 0 and not room.card.whole_only:
        yield f"{-room.free_mib} MiB more are taken than it has"
    if min(room.free_compute, room.free_offline) < 0:
        excess = -min(room.free_compute, room.free_offline)
        yield f"{excess} % more compute is granted than it has"
