"""Inventory: the nodes of a fleet and the grants on them, and nothing decided.

Each node has an ordinal, a small integer that ranks use in its place; the ordinals of removed nodes
are used again. Every change of a node is written to a journal, from which the answers kept per
shape learn which nodes to look at again.

Grants of a node that is gone wait for it: its pods may still exist, and the node may come back
under the same name with the same processes on its cards. They count in the accounts of their
namespaces all the while.

What pods have by an ElasticGPU is counted with that. Where none is known (somebody removed it by
force, or it cannot be read), the record of a pod stands in for it, as long as there is such a pod:
its processes hold what they hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, KeysView

from partage.core import accounts, cards, errors, grants, ranking, totals
from partage.core.placement.rooms import UNNUMBERED, NodeState

_SHORTEST = 4096  # entries of a journal or a table of looks, however few the nodes


class Journal:
    """Which nodes changed, in order; old entries are forgotten."""

    def __init__(self) -> None:
        self._entries: list[int] = []
        self._forgotten = 0

    @property
    def end(self) -> int:
        """The number of changes so far."""
        return self._forgotten + len(self._entries)

    def note(self, ordinal: int, nodes: int) -> None:
        """Write down that a node changed."""
        self._entries.append(ordinal)
        if len(self._entries) > max(_SHORTEST, 2 * nodes):
            half = len(self._entries) // 2
            del self._entries[:half]
            self._forgotten += half

    def since(self, seen: int) -> set[int] | None:
        """The nodes that changed after ``seen``; None if that is too long ago."""
        if seen < self._forgotten:
            return None
        return set(self._entries[seen - self._forgotten :])


class Looks:
    """A number for each look of a node, the same for nodes that look the same.

    Numbers are never used twice, so forgetting a look only means that it may get a second one.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._next = 0

    def number(self, look: tuple[object, ...], nodes: int) -> int:
        """The number of a look."""
        number = self._numbers.get(look)
        if number is None:
            if len(self._numbers) >= max(_SHORTEST, 2 * nodes):
                self._numbers.clear()
            number = self._numbers[look] = self._next
            self._next += 1
        return number


class Inventory:
    """Facts about nodes and grants, counted whether they fit or not."""

    def __init__(self) -> None:
        self.states: list[NodeState | None] = []  # by ordinal
        self.names: list[str] = []  # by ordinal
        self.ordinals: dict[str, int] = {}
        self.reused = 0  # how often the ordinal of a removed node was given to another
        self.journal = Journal()
        self.accounts = accounts.Accounts()
        self._looks = Looks()
        self._vacant: list[int] = []
        self._where: dict[str, str] = {}  # pod uid -> node
        self._waiting: dict[str, dict[str, grants.Grant]] = {}  # node that is gone -> grants
        self._users: dict[str, dict[str, None]] = {}  # ElasticGPU -> uids of the pods that have it
        self._stand_ins: set[str] = set()  # uids of ElasticGPUs that are known from pods only

    def set_node(self, node: cards.Node) -> None:
        """Add a node or take over its new facts; its grants stay."""
        ordinal = self.ordinals.get(node.name)
        state = None if ordinal is None else self.states[ordinal]
        if ordinal is None or state is None:
            self._add_node(node)
            return
        state.set_facts(node)
        self._note(ordinal)

    def remove_node(self, name: str) -> None:
        """Forget a node, but not the grants on it."""
        ordinal = self.ordinals.pop(name, None)
        if ordinal is None:
            return
        state = self.states[ordinal]
        if state is not None and state.grants:
            self._waiting[name] = state.grants
        self.states[ordinal] = None
        self.names[ordinal] = ""
        self._vacant.append(ordinal)
        self._note(ordinal)

    def add(self, grant: grants.Grant) -> None:
        """Count a grant in place of what the pod had."""
        self._forget(grant.pod.uid)
        self._put(grant)
        for container in grant.containers:
            if container.elastic_gpu:
                self._users.setdefault(container.elastic_gpu, {})[grant.pod.uid] = None
                self._end_stand_in(container.elastic_gpu)  # its cards may have other names now
                if grants.elastic_gpu_uid(container.elastic_gpu) not in self._where:
                    self._stand_in(container.elastic_gpu)

    def remove(self, uid: str) -> grants.Grant | None:
        """Give back what a pod had; None if it had nothing."""
        grant = self._forget(uid)
        if grant is not None and uid.startswith(grants.OF_ELASTIC_GPU):
            self._stand_in(uid.removeprefix(grants.OF_ELASTIC_GPU))
        return grant

    def set_total(self, namespace: str, total: totals.Total | None) -> None:
        """Give a namespace a total, or none any more; what it has stays."""
        self.accounts.set_total(namespace, total, self.all_grants())

    def state(self, node: str) -> NodeState | None:
        """What is known of a node."""
        ordinal = self.ordinals.get(node)
        return None if ordinal is None else self.states[ordinal]

    def present(self) -> Iterator[NodeState]:
        """The nodes that are there."""
        return (state for state in self.states if state is not None)

    def all_grants(self) -> Iterator[grants.Grant]:
        """All grants, those that wait for their node too."""
        placed = (state.grants.values() for state in self.present())
        return itertools.chain.from_iterable(
            itertools.chain(placed, (held.values() for held in self._waiting.values()))
        )

    def uids(self) -> KeysView[str]:
        """The pods that have a grant."""
        return self._where.keys()

    def is_stand_in(self, uid: str) -> bool:
        """Whether a grant of an ElasticGPU is known from its pods only."""
        return uid in self._stand_ins

    def users(self, elastic_gpu: str) -> frozenset[str]:
        """The pods that have the shares of an ElasticGPU by a claim."""
        return frozenset(self._users.get(elastic_gpu, ()))

    def grant_of(self, uid: str) -> grants.Grant | None:
        """A pod's grant."""
        node = self._where.get(uid)
        if node is None:
            return None
        state = self.state(node)
        return state.grants[uid] if state is not None else self._waiting[node][uid]

    def _add_node(self, node: cards.Node) -> None:
        state = NodeState(node)
        for grant in self._waiting.pop(node.name, {}).values():
            state.add(grant)
        if self._vacant:
            ordinal = self._vacant.pop()
            self.reused += 1
        else:
            ordinal = len(self.states)
            if ordinal == ranking.MOST_NODES:
                raise errors.LedgerError(f"a fleet has at most {ranking.MOST_NODES} nodes")
            self.states.append(None)
            self.names.append("")
        self.states[ordinal] = state
        self.names[ordinal] = node.name
        self.ordinals[node.name] = ordinal
        self._note(ordinal)

    def _forget(self, uid: str) -> grants.Grant | None:
        if uid not in self._where:
            return None
        grant = self._taken(uid)
        self._stand_ins.discard(uid)
        for container in grant.containers:
            if container.elastic_gpu:
                self._no_longer_used(container.elastic_gpu, uid)
        return grant

    def _put(self, grant: grants.Grant) -> None:
        self.accounts.add(grant)
        self._where[grant.pod.uid] = grant.node
        state = self.state(grant.node)
        if state is None:
            self._waiting.setdefault(grant.node, {})[grant.pod.uid] = grant
            return
        state.add(grant)
        self._note(self.ordinals[grant.node])

    def _taken(self, uid: str) -> grants.Grant:
        grant = self._taken_off(self._where.pop(uid), uid)
        self.accounts.remove(grant)
        return grant

    def _stand_in(self, elastic_gpu: str) -> None:
        """Count what pods have by an ElasticGPU of which nothing else is known."""
        for uid in self._users.get(elastic_gpu, ()):
            user = self.grant_of(uid)
            if user is not None:
                stand_in = grants.stand_in(user, elastic_gpu)
                self._stand_ins.add(stand_in.pod.uid)
                self._put(stand_in)
                return

    def _no_longer_used(self, elastic_gpu: str, uid: str) -> None:
        users = self._users.get(elastic_gpu, {})
        users.pop(uid, None)
        if users:
            return
        self._users.pop(elastic_gpu, None)
        self._end_stand_in(elastic_gpu)

    def _end_stand_in(self, elastic_gpu: str) -> None:
        owner = grants.elastic_gpu_uid(elastic_gpu)
        if owner in self._stand_ins:
            self._stand_ins.discard(owner)
            self._taken(owner)

    def _taken_off(self, node: str, uid: str) -> grants.Grant:
        state = self.state(node)
        if state is None:
            return self._stop_waiting(node, uid)
        grant = state.grants[uid]
        state.remove(uid)
        self._note(self.ordinals[node])
        return grant

    def _stop_waiting(self, node: str, uid: str) -> grants.Grant:
        waiting = self._waiting[node]
        grant = waiting.pop(uid)
        if not waiting:
            del self._waiting[node]
        return grant

    def _note(self, ordinal: int) -> None:
        nodes = len(self.states)
        state = self.states[ordinal]
        if state is not None and state.look_id == UNNUMBERED:
            state.look_id = self._looks.number(state.look(), nodes)
        self.journal.note(ordinal, nodes)
