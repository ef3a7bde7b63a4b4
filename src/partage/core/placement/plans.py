"""Plans: a pod's demand made ready to be tried on many nodes.

Reading a demand once, instead of on every node, is what keeps a decision over thousands of nodes
short. A Part is what one container needs of each card it stands on; a Bundle is the same for
several containers on the same cards, whose needs are added up moment by moment.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable

from partage.core import cards, demands, grants
from partage.core.placement.rooms import ALL_QOS_BITS, QOS_BITS, Room

_ANY_PERCENT = -(1 << 40)


class Plan:
    """A pod's demand, made ready to be tried on nodes."""

    def __init__(self, pod: demands.PodDemand) -> None:
        self.pod = pod
        self.offline = pod.qos is demands.Qos.OFFLINE
        self.other_qos_bits = ALL_QOS_BITS & ~QOS_BITS[pod.qos]
        self.moments = grants.moments([container.role for container in pod.containers])
        caps = [c.demand.max_tenants for c in pod.containers if c.demand.max_tenants]
        most_tenants = min(caps, default=0)
        group = pod.spread_group
        self.parts = [Part(container.demand, most_tenants, group) for container in pod.containers]
        self.bundle = self._bundle()
        # A cheap first look: without this much on a card, or so many empty cards, no node will do.
        self.least_mib = max((part.fixed_mib or 0 for part in self.parts), default=-1)
        steady = [
            p
            for p, c in zip(self.parts, pod.containers, strict=True)
            if c.role is not demands.Role.INIT
        ]
        self.steady_mib = sum(max(1, part.cards) * (part.fixed_mib or 0) for part in steady)
        self.least_empties = max((part.cards for part in self.parts if part.whole), default=0)
        self.by_uuid = any(c.demand.uuids or c.demand.not_uuids for c in pod.containers)
        self.picky = bool(pod.refused_by or pod.apart_from or pod.exclusive_node)
        self.asking = self.parts if self.bundle is None else [self.bundle]

    def _bundle(self) -> Part | None:
        """The pod as one part, where all containers stand on the same cards."""
        if len(self.parts) == 1:
            return self.parts[0]
        if self.pod.together and self.parts:
            return Bundle(self.parts, self.moments)
        return None


class Part:
    """What is needed of each card that one container, or several together, stand on."""

    def __init__(
        self, demand: demands.Demand, most_tenants: int = 0, spread_group: str = ""
    ) -> None:
        self.cards = demand.cards
        self.whole = demand.whole
        self.tenants = 1
        self.most_tenants = most_tenants
        self.spread_group = spread_group
        self.compute_percent = cards.FULL_PERCENT if demand.whole else demand.compute_percent
        self.fixed_mib: int | None = demand.memory_mib  # None: it depends on the card
        self.memory_percent = cards.FULL_PERCENT if demand.whole else demand.memory_percent
        if self.memory_percent:
            self.fixed_mib = None
        self.accepts = _acceptance(demand)

    def memory_mib(self, card_mib: int) -> int:
        """The memory needed of a card of this size; percent are of the card it lands on."""
        if self.fixed_mib is not None:
            return self.fixed_mib
        return card_mib * self.memory_percent // cards.FULL_PERCENT

    def room_mib(self, card_mib: int) -> int:
        """The memory that must be free: even a container that reserves none needs some to run."""
        return self.memory_mib(card_mib) or 1

    def share(self, card: cards.Card) -> grants.Share:
        """What a container that is placed on a card gets of it."""
        return grants.Share(
            uuid=card.uuid,
            index=card.index,
            memory_mib=self.memory_mib(card.memory_mib),
            compute_percent=self.compute_percent,
            exclusive=self.whole,
        )

    def fitting(self, rooms: list[Room], *, offline: bool) -> list[Room]:
        """The rooms that have what is needed, in index order."""
        # A demand without a compute share fits also where compute is oversubscribed.
        percent = self.compute_percent or _ANY_PERCENT
        tenants = self.tenants
        if self.whole:
            candidates = [room for room in rooms if room.empty and room.free_tenants >= tenants]
        elif self.fixed_mib is not None and not offline:
            need_mib = self.fixed_mib or 1  # as room_mib() says
            candidates = [
                room
                for room in rooms
                if room.free_mib >= need_mib
                and room.free_compute >= percent
                and room.free_tenants >= tenants
            ]
        else:
            candidates = [
                room
                for room in rooms
                if room.free_mib >= self.room_mib(room.memory_mib)
                and (room.free_offline if offline else room.free_compute) >= percent
                and room.free_tenants >= tenants
            ]
        if self.most_tenants:
            candidates = [
                room for room in candidates if room.tenants + tenants <= self.most_tenants
            ]
        if self.spread_group:
            candidates = [room for room in candidates if self.spread_group not in room.groups]
        if self.accepts is not None:
            candidates = [room for room in candidates if self.accepts(room.card)]
        return candidates


class Bundle(Part):
    """Several containers on the same cards: their sum at the worst moment."""

    def __init__(self, parts: list[Part], moments: list[list[int]]) -> None:
        self._parts = parts
        self._moments = moments
        self.cards = parts[0].cards
        self.whole = False
        self.tenants = max(len(moment) for moment in moments)
        self.most_tenants = parts[0].most_tenants
        self.spread_group = parts[0].spread_group
        self.compute_percent = self._worst([part.compute_percent for part in parts])
        fixed = [part.fixed_mib for part in parts if part.fixed_mib is not None]
        self.fixed_mib = self._worst(fixed) if len(fixed) == len(parts) else None
        filters = [part.accepts for part in parts if part.accepts is not None]
        self.accepts = (lambda card: all(accept(card) for accept in filters)) if filters else None

    def memory_mib(self, card_mib: int) -> int:
        if self.fixed_mib is not None:
            return self.fixed_mib
        return self._worst([part.memory_mib(card_mib) for part in self._parts])

    def _worst(self, needs: list[int]) -> int:
        return max(sum(needs[i] for i in moment) for moment in self._moments)


def _acceptance(demand: demands.Demand) -> Callable[[cards.Card], bool] | None:
    """A test of a card against the demand's restrictions, or None where it has none."""
    if not (demand.models or demand.not_models or demand.uuids or demand.not_uuids):
        return None

    models: dict[str, bool] = {}  # a fleet has few models and many cards

    def accepts(card: cards.Card) -> bool:
        if card.model not in models:
            models[card.model] = model_accepted(demand, card.model)
        if not models[card.model] or card.uuid in demand.not_uuids:
            return False
        return not demand.uuids or card.uuid in demand.uuids

    return accepts


def model_accepted(demand: demands.Demand, model: str) -> bool:
    """Whether the demand's patterns let a model pass."""
    name = model.lower()
    if any(fnmatch.fnmatchcase(name, pattern.lower()) for pattern in demand.not_models):
        return False
    return not demand.models or any(
        fnmatch.fnmatchcase(name, pattern.lower()) for pattern in demand.models
    )
