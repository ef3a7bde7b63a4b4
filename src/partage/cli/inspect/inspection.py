"""An inspection: who has which card, in all dialects, as one value to be printed in any form.

It is computed from a Mirror, which is what the extender decides from. So what is shown is what
counts: grants that were read exactly, and grants whose record is damaged, which count on every
card they may have and are marked. Missing data is a value: what nobody told is None.

The names of the fields are those of Partage's own records, and stay.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Iterator

import msgspec

from partage.cli import objects
from partage.core import grants
from partage.core.rooms import NodeState, Room, Use
from partage.dialects import nodes
from partage.scheduler import mirror


class Tenant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one pod has of one card, at its worst moment."""

    namespace: str
    pod: str
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


class Card(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One card; used and free add up to its memory, what is foreign is a part of what is used."""

    index: int
    uuid: str | None
    model: str | None
    healthy: bool
    memory_mib: int
    used_mib: int
    foreign_mib: int
    free_mib: int
    compute_percent: int  # granted, but for offline pods
    offline_percent: int
    foreign_percent: int
    tenants: tuple[Tenant, ...]
    measured_mib: int | None = None  # in use now, by whomever, where an agent was asked


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node that has cards, or was asked for."""

    name: str
    address: str | None
    cards: tuple[Card, ...]


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with an object of the cluster."""

    object: str
    text: str


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """All that is shown."""

    api_version: str = msgspec.field(default=objects.API_VERSION, name="apiVersion")
    kind: str = "Inspection"
    nodes: tuple[Node, ...]
    problems: tuple[Problem, ...]


def inspect(known: mirror.Mirror, *, named: str = "") -> Inspection:
    """What a mirror knows; nodes without cards are left out unless they are ``named``."""
    there = (s for s in known.fleet.states() if s.rooms or s.uses or s.node.name == named)
    states = sorted(there, key=lambda state: state.node.name)
    views = [_View(state, known) for state in states]
    found = (Problem(what, text) for what, text in known.problems)
    seen = (problem for view in views for problem in view.problems())
    return Inspection(nodes=tuple(view.node() for view in views), problems=(*found, *seen))


class _View:
    """One node: its grants are gone through once, and sorted by card."""

    def __init__(self, state: NodeState, known: mirror.Mirror) -> None:
        self._state = state
        self._tenants: dict[str, list[Tenant]] = collections.defaultdict(list)  # by uuid
        for grant in state.grants.values():
            guessed = known.pods.is_guessed(grant.pod.uid, grant.node)
            for uuid, taking in grants.takings(grant).items():
                self._tenants[uuid].append(_tenant(grant, uuid, taking, worst_case=guessed))

    def node(self) -> Node:
        node = self._state.node
        return Node(
            name=node.name,
            address=node.address or None,
            cards=tuple(self._card(room) for room in self._state.rooms),
        )

    def problems(self) -> Iterator[Problem]:
        """What the sums show and no object says by itself."""
        name = f"node {self._state.node.name}"
        for room in self._state.rooms:
            for text in _exceeded(room):
                yield Problem(name, f"card {room.card.index}: {text}{self._doubt(room)}")
        there = {room.card.uuid for room in self._state.rooms}
        for uuid in sorted(self._tenants.keys() - there):
            pods = ", ".join(f"{t.namespace}/{t.pod}" for t in self._tenants[uuid])
            yield Problem(name, f"card {uuid} is not there; it was granted to {pods}")

    def _card(self, room: Room) -> Card:
        card = room.card
        use = self._state.uses.get(card.uuid) or Use()
        return Card(
            index=card.index,
            uuid=None if nodes.unnamed(card) else card.uuid,
            model=card.model or None,
            healthy=card.healthy,
            memory_mib=card.memory_mib,
            used_mib=card.memory_mib - room.free_mib,
            foreign_mib=card.foreign_memory_mib,
            free_mib=room.free_mib,
            compute_percent=use.compute_percent,
            offline_percent=use.offline_percent,
            foreign_percent=card.foreign_compute_percent,
            tenants=tuple(sorted(self._tenants[card.uuid], key=_NAMES)),
        )

    def _doubt(self, room: Room) -> str:
        doubted = any(tenant.worst_case for tenant in self._tenants[room.card.uuid])
        return "; a part of it is counted in the worst case" if doubted else ""


_NAMES = operator.attrgetter("namespace", "pod", "uid")


def _tenant(grant: grants.Grant, uuid: str, taking: grants.Taking, *, worst_case: bool) -> Tenant:
    here = [c for c in grant.containers if any(share.uuid == uuid for share in c.shares)]
    fences = sorted({c.fence for c in here if c.fence})
    alone = "card" if taking.exclusive else "no"
    return Tenant(
        namespace=grant.pod.namespace,
        pod=grant.pod.name,
        uid=grant.pod.uid,
        dialect=grant.dialect or None,
        containers=tuple(c.name for c in here if c.name),
        qos=grant.qos.value,
        memory_mib=taking.memory_mib,
        compute_percent=taking.compute_percent,
        exclusive="node" if grant.exclusive_node else alone,
        fence=",".join(fences) or None,  # written down when containers have started
        worst_case=worst_case,
    )


def _exceeded(room: Room) -> Iterator[str]:
    if room.free_mib < 0:
        yield f"{-room.free_mib} MiB more are taken than it has"
    if min(room.free_compute, room.free_offline) < 0:
        excess = -min(room.free_compute, room.free_offline)
        yield f"{excess} % more compute are granted than it has"
