"""Rooms: what is free on each card of a node, kept in step with the grants on it.

A NodeState holds the facts of one node, the grants on it, and one Room per card. Grants are added
and removed as whole pods; each changes the integer sums of the cards it touches by exactly its
takings, so releasing gives back what was taken and nothing else. Sums are kept by uuid and outlive
the card: a card that vanishes and comes back comes back with its tenants.

A node may be oversubscribed (it shrank, or another scheduler placed pods). Free room is then
negative, so nothing fits; it never wraps around.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from partage.core import cards, demands, grants

QOS_BITS = {demands.Qos.ONLINE: 1, demands.Qos.NORMAL: 2, demands.Qos.OFFLINE: 4}
ALL_QOS_BITS = 7
UNNUMBERED = -1
_NO_GROUPS: Mapping[str, int] = {}


class Use:
    """The sums over all grants on one card."""

    __slots__ = (
        "compute_percent",
        "exclusive",
        "groups",
        "memory_mib",
        "offline_percent",
        "pods",
        "tenants",
    )

    def __init__(self) -> None:
        self.memory_mib = 0
        self.compute_percent = 0
        self.offline_percent = 0  # offline pods divide what the others leave, so they add up apart
        self.tenants = 0
        self.exclusive = 0
        self.groups: Mapping[str, int] = _NO_GROUPS  # how many pods of each spread group
        self.pods = dict.fromkeys(QOS_BITS, 0)

    def add(self, taking: grants.Taking, qos: demands.Qos, sign: int) -> None:
        """Count a taking (sign 1) or give it back (sign -1)."""
        self.memory_mib += sign * taking.memory_mib
        self.tenants += sign * taking.tenants
        self.exclusive += sign * taking.exclusive
        self.pods[qos] += sign
        if qos is demands.Qos.OFFLINE:
            self.offline_percent += sign * taking.compute_percent
        else:
            self.compute_percent += sign * taking.compute_percent

    def add_to_group(self, group: str, sign: int) -> None:
        """Count a pod of a spread group (sign 1), or one that is gone (sign -1)."""
        count = self.groups.get(group, 0) + sign
        others = {name: pods for name, pods in self.groups.items() if name != group}
        self.groups = {**others, group: count} if count else others

    @property
    def qos_bits(self) -> int:
        """Which qualities of service are on the card."""
        return sum(bit for qos, bit in QOS_BITS.items() if self.pods[qos])


_UNUSED = Use()  # of all cards that nobody has


class Room:
    """What one card has left; a plain object because fitting reads it millions of times."""

    __slots__ = (
        "card",
        "cordoned",
        "divisor_mib",
        "empty",
        "free_compute",
        "free_mib",
        "free_offline",
        "free_percent",
        "free_tenants",
        "groups",
        "look",
        "memory_mib",
        "open",
        "position",
        "qos_bits",
        "tenants",
    )

    def __init__(self, card: cards.Card, position: int, use: Use, cordoned: bool = False) -> None:
        self.card = card
        self.position = position
        self.cordoned = cordoned
        self.memory_mib = card.memory_mib
        # Nothing of a card of unknown memory can be shared, so it counts as one with none left:
        # who wants it whole gets it before cards that others could share.
        self.divisor_mib = card.memory_mib or 1
        self.free_mib = card.memory_mib - card.foreign_memory_mib - use.memory_mib
        spare = cards.FULL_PERCENT - card.foreign_compute_percent
        self.free_compute = spare - use.compute_percent
        self.free_offline = cards.FULL_PERCENT - use.offline_percent
        self.tenants = use.tenants
        self.free_tenants = card.max_tenants - use.tenants
        self.qos_bits = use.qos_bits
        self.groups = frozenset(use.groups)
        foreign = card.foreign_memory_mib or card.foreign_compute_percent
        self.empty = not use.tenants and not foreign
        self.open = card.healthy and not cordoned and not use.exclusive
        self.free_percent = self.percent_without(0, 0)
        self.look = (
            card.model,
            self.memory_mib,
            self.free_mib,
            self.free_compute,
            self.free_offline,
            self.tenants,
            self.free_tenants,
            self.qos_bits,
            self.empty,
            self.open,
            card.healthy,  # why a card is not open is part of the answer
            cordoned,
            self.groups,
        )

    def less(self, *, memory_mib: int, compute_percent: int, tenants: int, exclusive: bool) -> Room:
        """The room that would be left if this much more were taken; to try it, not to keep it."""
        rest = Room.__new__(Room)  # copy.copy() would take ten times as long
        rest.card = self.card
        rest.cordoned = self.cordoned
        rest.position = self.position
        rest.memory_mib = self.memory_mib
        rest.divisor_mib = self.divisor_mib
        rest.qos_bits = self.qos_bits
        rest.groups = self.groups
        rest.free_mib = self.free_mib - memory_mib
        rest.free_compute = self.free_compute - compute_percent
        rest.free_offline = self.free_offline - compute_percent
        rest.tenants = self.tenants + tenants
        rest.free_tenants = self.free_tenants - tenants
        rest.empty = self.empty and not tenants
        rest.open = self.open and not exclusive
        rest.free_percent = rest.percent_without(0, 0)
        return rest

    def percent_without(self, memory_mib: int, compute_percent: int) -> int:
        """What would be left of the card: the smaller of memory and compute, in whole percent."""
        by_memory = cards.FULL_PERCENT * (self.free_mib - memory_mib) // self.divisor_mib
        by_compute = self.free_compute - compute_percent
        # Written out, because min() and max() would take twice as long and this is all we do.
        left = by_memory if by_memory < by_compute else by_compute  # noqa: FURB136
        return left if left > 0 else 0  # noqa: FURB136


class NodeState:
    """One node with everything granted on it."""

    __slots__ = (
        "digest",
        "empties",
        "free_mib",
        "grants",
        "kinds",
        "link_rows",
        "links",
        "look_id",
        "most_free_mib",
        "node",
        "open_rooms",
        "qos_bits",
        "rooms",
        "tags",
        "uses",
        "whole_pods",
    )

    def __init__(self, node: cards.Node) -> None:
        self.grants: dict[str, grants.Grant] = {}
        self.uses: dict[str, Use] = {}
        self.rooms: list[Room] = []
        self.node = node
        self.tags: dict[str, int] = {}  # how many pods carry each tag
        self.whole_pods = 0  # how many pods have the node for themselves: 0 or 1, if all is well
        self.digest: Any = None  # what one policy remembers until anything changes
        self.look_id = UNNUMBERED  # a number for the present look, given by the inventory
        self.set_facts(node)

    def set_facts(self, node: cards.Node) -> None:
        """Take over new facts; the grants stay."""
        before = self.node
        self.node = node
        if self.rooms and node.cards is before.cards and _modes(node) == _modes(before):
            # Only what is around the cards changed, as it does with every pod.
            self.digest = None
            return
        self.rooms = [self._room(card, position) for position, card in enumerate(node.cards)]
        self.links = {card.uuid: dict(card.links) for card in node.cards if card.links}
        self.link_rows = tuple(
            tuple(self.links.get(card.uuid, {}).get(other.uuid, 0) for other in node.cards)
            for card in (node.cards if self.links else ())
        )
        self._refresh()

    def add(self, grant: grants.Grant) -> None:
        """Count a grant, whether it fits or not: that it exists is a fact."""
        self.grants[grant.pod.uid] = grant
        self._apply(grant, 1)

    def remove(self, uid: str) -> None:
        """Give back what the pod's grant took."""
        self._apply(self.grants.pop(uid), -1)

    def look(self) -> tuple[object, ...]:
        """All that fitting can see of the node; equal looks get equal answers, card by card."""
        return (
            *[room.look for room in self.rooms],
            self.link_rows,
            self.node.traits,
            self.node.cards_by,
            bool(self.grants),
            self.whole_pods,
            *sorted(self.tags),
        )

    def emptied(self) -> NodeState:
        """The same cards, healthy and open, with no pod on them: what the node can hold at best."""
        replace = msgspec.structs.replace
        bare = tuple(
            replace(card, healthy=True, foreign_memory_mib=0, foreign_compute_percent=0)
            for card in self.node.cards
        )
        return NodeState(replace(self.node, cards=bare, cordons={}))

    def _apply(self, grant: grants.Grant, sign: int) -> None:
        touched = grants.takings(grant)
        for uuid, taking in touched.items():
            use = self.uses.setdefault(uuid, Use())
            use.add(taking, grant.qos, sign)
            if grant.spread_group:
                use.add_to_group(grant.spread_group, sign)
            if not use.tenants:
                del self.uses[uuid]
        self.whole_pods += sign * grant.exclusive_node
        if grant.tag:
            self.tags[grant.tag] = self.tags.get(grant.tag, 0) + sign
            if not self.tags[grant.tag]:
                del self.tags[grant.tag]
        self._renew(touched)

    def _renew(self, touched: Container[str]) -> None:
        for room in self.rooms:
            if room.card.uuid in touched:
                self.rooms[room.position] = self._room(room.card, room.position)
        self._refresh()

    def _room(self, card: cards.Card, position: int) -> Room:
        use = self.uses.get(card.uuid, _UNUSED)
        return Room(card, position, use, card.uuid in self.node.cordons)

    def _refresh(self) -> None:
        self.digest = None
        self.look_id = UNNUMBERED
        self.open_rooms = [] if self.whole_pods else [room for room in self.rooms if room.open]
        self.kinds = list({room.look: room for room in reversed(self.open_rooms)}.values())[::-1]
        self.most_free_mib = -1
        self.free_mib = self.empties = self.qos_bits = 0
        for room in self.rooms:
            self.qos_bits |= room.qos_bits
        for room in self.open_rooms:
            self.free_mib += room.free_mib
            self.empties += room.empty
            self.most_free_mib = max(self.most_free_mib, room.free_mib)


def _modes(node: cards.Node) -> tuple[object, ...]:
    """What is said of a node's cards besides what they are."""
    return node.traits, node.cards_by, node.cordons
