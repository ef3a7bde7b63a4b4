"""Priced: place a pod where it destroys least value. The default policy.

A placement costs what the free pieces of its cards lose in value (:mod:`.prices`), plus what the
node will strand for want of CPU because of it (:mod:`.stranding`; :mod:`.contention` where pods
without cards take CPU, too), plus a surcharge on models that others will need (:mod:`.scarcity`).
Losses that are nearly equal count as equal, and then the node with the least free room wins, which
keeps whole nodes free.

The policy itself is fixed: opinions come as an immutable Lesson, made from the mix of pods that
arrived. Making one takes milliseconds and is the caller's to do off the path of a decision.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from partage.core import cards, demands
from partage.core.demand_mix import Mix
from partage.core.placement import plans
from partage.core.placement.arrangement import Chosen
from partage.core.placement.plans import Part, Plan
from partage.core.placement.rooms import NodeState, Room
from partage.core.policies import contention, contract, prices, scarcity, stranding

_BUCKETS_PER_CARD = 12.5  # losses within 0.08 cards are nearly equal
_CONTENDED_BUCKETS_PER_CARD = 50.0  # where CPU is short, keeping whole nodes free matters less
_RELIEF = 0.5  # how much of a stranding that gets smaller is believed
_SURCHARGE = 3.0  # on scarce models
_MICRO = 1_000_000
_MOST_BUCKETS = 1 << 20  # on either side of no loss; no node has that many cards
_FREE_BITS = 24
_MOST_SIZES = 8  # card sizes with values of their own


class Lesson(msgspec.Struct, frozen=True):
    """What a mix taught: values by card size, CPU per card, scarce models, whether CPU is short."""

    values: dict[int, prices.Values] = {}  # by memory of the card; others: proportional
    cpu: stranding.CpuDemand = stranding.CpuDemand()
    scarce: dict[str, float] = {}
    contended: contention.Contended | None = None  # None: CPU suffices for all


class Priced:
    """Least loss first, least free room among near equals."""

    name = "priced"
    reads_cpu = True
    reads_main = False

    def __init__(self, lesson: Lesson | None = None) -> None:
        self._lesson = lesson or Lesson()
        self._plain = _micro(prices.proportional())
        self._values = {size: _micro(v) for size, v in self._lesson.values.items()}
        self._scarce = self._lesson.scarce
        contended = self._lesson.contended
        self._stranded = (contended or self._lesson.cpu).stranded
        self._buckets = _CONTENDED_BUCKETS_PER_CARD if contended else _BUCKETS_PER_CARD

    def card_key(self, room: Room, memory_mib: int, compute_percent: int) -> int:
        values = self._values.get(room.memory_mib, self._plain)
        left = room.percent_without(memory_mib, compute_percent)
        return (values[room.free_percent] - values[left] << _FREE_BITS) + room.free_mib

    def offer(self, state: NodeState, plan: Plan, chosen: Chosen) -> tuple[float, float]:
        """The value spent, and the loss it is: more than that where the model is scarce."""
        spent = loss = 0.0
        for room, left in _left(state, plan, chosen):
            values = self._values.get(room.memory_mib, self._plain)
            cost = (values[room.free_percent] - values[left]) / _MICRO
            spent += cost
            loss += cost * (1 + _SURCHARGE * self._scarce.get(room.card.model, 0.0))
        return spent, loss

    def node_key(self, state: NodeState, pod: demands.PodDemand, offer: tuple[float, float]) -> int:
        digest: _Digest | None = state.digest
        if digest is None or digest[0] is not self:
            digest = state.digest = self._digest(state)
        _, worth, free_percent, free_cpu, stranded = digest
        spent, loss = offer
        if free_cpu is not None:
            left_cpu = free_cpu - pod.cpu_milli
            if left_cpu < 0:
                return (
                    contract.LARGEST_KEY
                )  # last, not out: whether CPU is short is not ours to say
            change = self._stranded(worth - spent, left_cpu) - stranded
            loss += change if change > 0 else change * _RELIEF
        bucket = int(loss * self._buckets + _MOST_BUCKETS)
        return (bucket << _FREE_BITS) + free_percent

    def _digest(self, state: NodeState) -> _Digest:
        """What all demands need to know of a node, once per change of it."""
        worth = free_percent = 0
        for room in state.open_rooms:
            worth += self._values.get(room.memory_mib, self._plain)[room.free_percent]
            free_percent += room.free_percent
        cards_worth = worth / _MICRO
        free_cpu = state.node.free_cpu_milli
        stranded = 0.0 if free_cpu is None else self._stranded(cards_worth, free_cpu)
        return self, cards_worth, free_percent, free_cpu, stranded


_Digest = tuple[Priced, float, int, int | None, float]  # whose, worth, free, CPU, stranded


def learn(mix: Mix, states: Iterable[NodeState]) -> Lesson:
    """A lesson from what arrived, for the cards that are there."""
    nodes = list(states)
    sizes = _commonest_sizes(nodes)
    arrived = [(plans.Plan(pod), count) for pod, count in mix]
    reference = sizes[0] if sizes else 1
    loads = [(_cards(plan, reference), plan.pod.cpu_milli, count) for plan, count in arrived]
    values = {size: prices.values(_sizes(arrived, size)) for size in sizes}
    return Lesson(
        values=values,
        cpu=stranding.learn(loads),
        scarce=_scarce(nodes, arrived, reference),
        contended=contention.learn(loads, _node_rooms(nodes, values)),
    )


def _left(state: NodeState, plan: Plan, chosen: Chosen) -> list[tuple[Room, int]]:
    """The rooms that are used and the percent left of each; containers apart are added up."""
    rooms = state.rooms
    part = plan.bundle
    if part is not None:
        percent = 0 if plan.offline else part.compute_percent
        used = [rooms[i] for i in chosen[0]]
        return [(r, r.percent_without(part.memory_mib(r.memory_mib), percent)) for r in used]
    sums: dict[int, tuple[int, int]] = {}
    for part, positions in zip(plan.parts, chosen, strict=True):
        for i in positions:
            memory_mib, percent = sums.get(i, (0, 0))
            memory_mib += part.memory_mib(rooms[i].memory_mib)
            sums[i] = memory_mib, percent + (0 if plan.offline else part.compute_percent)
    return [(rooms[i], rooms[i].percent_without(*taken)) for i, taken in sums.items()]


def _node_rooms(
    states: list[NodeState], values: dict[int, prices.Values]
) -> Iterable[contention.NodeRoom]:
    """The worth of the free cards and the free CPU of each node that says what CPU it has."""
    plain = prices.proportional()
    for state in states:
        free_cpu_milli = state.node.free_cpu_milli
        if free_cpu_milli is not None:
            rooms = state.open_rooms
            worth = sum(values.get(room.memory_mib, plain)[room.free_percent] for room in rooms)
            yield worth, free_cpu_milli


def _micro(values: prices.Values) -> list[int]:
    return [round(value * _MICRO) for value in values]


def _commonest_sizes(states: list[NodeState]) -> list[int]:
    counts: dict[int, int] = {}
    for state in states:
        for room in (room for room in state.rooms if not room.card.whole_only):
            counts[room.memory_mib] = counts.get(room.memory_mib, 0) + 1
    return sorted(counts, key=lambda size: -counts[size])[:_MOST_SIZES]


def _sizes(arrived: list[tuple[Plan, float]], card_mib: int) -> dict[int, float]:
    """How often each share of a card of this size was asked for."""
    sizes: dict[int, float] = {}
    for plan, count in arrived:
        for part in plan.asking:
            size = _percent(part, card_mib)
            if size <= cards.FULL_PERCENT:
                sizes[size] = sizes.get(size, 0.0) + count * max(1, part.cards)
    return sizes


def _percent(part: Part, card_mib: int) -> int:
    by_memory = -(-cards.FULL_PERCENT * part.memory_mib(card_mib) // card_mib)
    return max(1, by_memory, part.compute_percent)


def _cards(plan: Plan, card_mib: int) -> float:
    """A pod's demand in cards of a size."""
    return sum(
        max(1, part.cards) * min(cards.FULL_PERCENT, _percent(part, card_mib)) / cards.FULL_PERCENT
        for part in plan.asking
    )


def _scarce(
    states: list[NodeState], arrived: list[tuple[Plan, float]], card_mib: int
) -> dict[str, float]:
    rooms: dict[str, float] = {}
    for state in states:
        for room in state.open_rooms:
            rooms[room.card.model] = rooms.get(room.card.model, 0.0) + room.free_percent
    demand_by_models: dict[scarcity.Models, float] = {}
    for plan, count in arrived:
        accepted = frozenset(rooms)
        for container in plan.pod.containers:
            demand = container.demand
            accepted = frozenset(m for m in accepted if plans.model_accepted(demand, m))
        demand_by_models[accepted] = demand_by_models.get(accepted, 0.0) + count * _cards(
            plan, card_mib
        )
    return scarcity.scarcities(rooms, demand_by_models)
