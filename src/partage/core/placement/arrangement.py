"""Arrangements of containers that may use different cards.

Parts are placed one card at a time, hardest first, with the policy's favourite card first and with
backtracking, so that a pod is refused only if no arrangement exists. Cards that are alike are tried
once. What a card carries is summed per moment of the pod's life, so an init container may use the
room of an app that runs after it.

The number of steps is limited, for a pod of dozens of unequal containers could be made to search
for ever; beyond the limit the pod counts as not fitting (docs/limits.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from partage.core import demands
from partage.core.placement import topology
from partage.core.placement.plans import Part, Plan
from partage.core.placement.rooms import NodeState, Room

Chosen = tuple[tuple[int, ...], ...]  # per container, the positions of its cards on the node

MOST_STEPS = 250
MOST_SLOTS = 128  # containers times cards; a pod that needs more is not searched for


class CardPolicy(Protocol):
    """The part of a policy that chooses among a node's cards."""

    def card_key(self, room: Room, memory_mib: int, compute_percent: int) -> int:
        """How good the card is for this need; lower is better."""
        ...


def search(state: NodeState, plan: Plan, policy: CardPolicy) -> Chosen | None:
    """One arrangement of all parts, or None if there is none (or none was found in time)."""
    if _slots(state, plan) > MOST_SLOTS or not _conceivable(state, plan):
        return None
    return _Search(state, plan, policy).run()


def gives_up(state: NodeState, plan: Plan, policy: CardPolicy) -> bool:
    """Whether the search ends without knowing: no arrangement was found, but not all were tried."""
    if plan.bundle is not None or not _conceivable(state, plan):
        return False
    if _slots(state, plan) > MOST_SLOTS:
        return True
    attempt = _Search(state, plan, policy)
    return attempt.run() is None and attempt.exhausted


def _slots(state: NodeState, plan: Plan) -> int:
    return sum(_count(state, part) for part in plan.parts)


def _conceivable(state: NodeState, plan: Plan) -> bool:
    """Whether each part would find its cards if it were alone, and all of them the memory."""
    if plan.steady_mib > sum(room.free_mib for room in state.open_rooms if room.free_mib > 0):
        return False
    return all(
        len(part.fitting(state.open_rooms, offline=plan.offline)) >= _count(state, part)
        for part in plan.parts
    )


def _count(state: NodeState, part: Part) -> int:
    return max(1, len(state.rooms)) if part.cards == demands.ALL_CARDS else part.cards


class _Search:
    """One attempt at one node."""

    def __init__(self, state: NodeState, plan: Plan, policy: CardPolicy) -> None:
        self.state = state
        self.plan = plan
        self.policy = policy
        self.steps = 0
        self.running = [
            [moment for moment, members in enumerate(plan.moments) if i in members]
            for i in range(len(plan.parts))
        ]
        self.loads = [_Load(len(plan.moments)) for _ in state.rooms]
        self.chosen: list[list[int]] = [[] for _ in plan.parts]
        self.spent: list[set[int]] = [set() for _ in plan.parts]  # cards that were tried in vain
        self.slots = self._slots()
        self.picky = any(part.accepts is not None for part in plan.parts)

    @property
    def exhausted(self) -> bool:
        """Whether more steps were taken than are allowed, besides one for each card."""
        return self.steps > MOST_STEPS + len(self.slots)

    def run(self) -> Chosen | None:
        if not self._next(0):
            return None
        return tuple(tuple(sorted(positions)) for positions in self.chosen)

    def _slots(self) -> list[int]:
        """The container of each card to be found: few candidates first, init containers last."""

        def hardness(i: int) -> tuple[bool, int, bool, int, int]:
            part, role = self.plan.parts[i], self.plan.pod.containers[i].role
            candidates = len(part.fitting(self.state.open_rooms, offline=self.plan.offline))
            size = part.memory_mib(max((r.memory_mib for r in self.state.rooms), default=0))
            last = role is demands.Role.INIT
            return (last, candidates, not part.whole, -size, -part.compute_percent)

        order = sorted(range(len(self.plan.parts)), key=hardness)
        return [i for i in order for _ in range(_count(self.state, self.plan.parts[i]))]

    def _next(self, slot: int) -> bool:
        if slot == len(self.slots):
            return bool(self.slots)
        index = self.slots[slot]
        in_vain = []
        for room in self._candidates(index, self.plan.parts[index]):
            self.steps += 1
            if self.exhausted:
                return False
            if self._try(slot, index, room):
                return True
            # A container's cards are a set: what did not work with this card first will not work
            # with it second.
            in_vain.append(room.position)
            self.spent[index].add(room.position)
        self.spent[index].difference_update(in_vain)
        return False

    def _try(self, slot: int, index: int, room: Room) -> bool:
        part, load = self.plan.parts[index], self.loads[room.position]
        need_mib = part.memory_mib(room.memory_mib)
        load.put(self.running[index], need_mib, part, 1)
        self.chosen[index].append(room.position)
        if self._next(slot + 1):
            return True
        self.chosen[index].pop()
        load.put(self.running[index], need_mib, part, -1)
        return False

    def _candidates(self, index: int, part: Part) -> Iterator[Room]:
        """Rooms for one more card of this container: no peak raised, then near, then policy."""
        rated = []
        seen = set()
        for room in self.state.open_rooms:
            if room.position in self.chosen[index] or room.position in self.spent[index]:
                continue
            left = self._left(index, part, room)
            if not left.open or not part.fitting([left], offline=self.plan.offline):
                continue
            look = self._look(room)
            if look not in seen:
                seen.add(look)
                rated.append((self._rate(index, part, room), room.position, room))
        return (room for _, _, room in sorted(rated, key=lambda entry: entry[:2]))

    def _left(self, index: int, part: Part, room: Room) -> Room:
        """The room as a container finds it; without a memory share it needs some free memory."""
        left = self.loads[room.position].left(room, self.running[index])
        if left is not room and not part.memory_mib(room.memory_mib):
            left.free_mib = room.free_mib
        return left

    def _rate(self, index: int, part: Part, room: Room) -> tuple[bool, int, int, int]:
        need_mib = part.memory_mib(room.memory_mib)
        load = self.loads[room.position]
        at_peak = load.left(room, range(len(self.plan.moments)))
        near = [self.state.rooms[i].card.uuid for i in self.chosen[index]]
        return (
            bool(room.qos_bits & self.plan.other_qos_bits),
            load.raised(self.running[index], need_mib),
            -topology.pull(room.card.uuid, near, self.state.links),
            self.policy.card_key(at_peak, need_mib, part.compute_percent),
        )

    def _look(self, room: Room) -> tuple[object, ...]:
        """Two cards that look the same need not both be tried."""
        whose = room.card.uuid if self.picky or self.state.links else None
        return whose, room.look, self.loads[room.position].look()


class _Load:
    """What this pod has put on one card so far, at each moment of its life."""

    def __init__(self, moments: int) -> None:
        self.memory_mib = [0] * moments
        self.compute = [0] * moments
        self.tenants = [0] * moments
        self.whole = [0] * moments

    def put(self, running: list[int], memory_mib: int, part: Part, sign: int) -> None:
        for moment in running:
            self.memory_mib[moment] += sign * memory_mib
            self.compute[moment] += sign * part.compute_percent
            self.tenants[moment] += sign * part.tenants
            self.whole[moment] += sign * part.whole

    def raised(self, running: list[int], memory_mib: int) -> int:
        """By how much the worst moment grows; an init container should not make it grow."""
        after = max(self.memory_mib[moment] for moment in running) + memory_mib
        return max(0, after - max(self.memory_mib))

    def left(self, room: Room, running: list[int] | range) -> Room:
        """The room as a container that runs at these moments finds it."""
        if not any(self.tenants):
            return room
        return room.less(
            memory_mib=max(self.memory_mib[m] for m in running),
            compute_percent=max(self.compute[m] for m in running),
            tenants=max(self.tenants[m] for m in running),
            exclusive=any(self.whole[m] for m in running),
        )

    def look(self) -> tuple[tuple[int, ...], ...]:
        return tuple(map(tuple, (self.memory_mib, self.compute, self.tenants, self.whole)))
