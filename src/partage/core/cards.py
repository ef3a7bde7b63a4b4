"""Cards and nodes: the facts that are found, not decided.

A Card is one physical GPU (or one MIG instance), a Node is a machine and its cards. Both are
immutable snapshots: when something changes (a card falls unhealthy, a process outside Partage takes
memory, a card is swapped), the watcher hands a new Node to the fleet, and the grants that are
already there are counted against the new facts.

``foreign_*`` is what processes use that Partage did not start. It is a fact about the card, found
by the node's agent, and reduces what can be granted.

Of some cards only the number is known: somebody told the node's status that they are there. They
are ``whole_only``: whoever asks for a share asks for memory that nobody can promise. A card without
memory that does not say so is a mistake, and so is one that says so and has some.

A cordon is not a fact about a card but an administrator's word about the node: nothing new lands on
the card, and what is there stays. So it is the Node that has it, and agents do not publish it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

FULL_PERCENT = 100
MANY_TENANTS = 1024


class Link(enum.IntEnum):
    """How near two cards are, as ``nvidia-smi topo`` names it; higher is nearer."""

    SYS = 1
    NODE = 2
    PHB = 3
    PXB = 4
    PIX = 5
    NVLINK = 10  # one link; more links add up, so any larger number is an NVLink bundle


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as its node reports it."""

    uuid: str
    index: int
    memory_mib: int  # 0 if it is whole_only
    model: str = ""
    healthy: bool = True
    max_tenants: int = MANY_TENANTS
    foreign_memory_mib: int = 0
    foreign_compute_percent: int = 0
    minor: int | None = None  # of its device file, /dev/nvidia<minor>
    numa: int | None = None
    links: tuple[tuple[str, int], ...] = ()  # (uuid of the other card, Link), none if unknown
    whole_only: bool = False  # its memory is not known, so it is given whole or not at all

    def __post_init__(self) -> None:
        if not self.uuid:
            raise ValueError("a card needs a uuid")
        least_mib = 0 if self.whole_only else 1
        if self.memory_mib < least_mib or self.index < 0 or self.max_tenants < 1:
            raise ValueError(f"card {self.uuid}: memory, index and max_tenants must be positive")
        if self.whole_only and self.memory_mib:
            raise ValueError(f"card {self.uuid}: its memory is said to be unknown, and is given")
        if self.foreign_memory_mib < 0 or self.foreign_compute_percent < 0:
            raise ValueError(f"card {self.uuid}: foreign use cannot be negative")


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine: its cards in index order, and what a policy may know about the rest of it."""

    name: str
    cards: tuple[Card, ...] = ()
    traits: frozenset[str] = frozenset()  # modes set by labels, as dialects name them: "t9k/xgn"
    cards_by: str = ""  # the policy that chooses among this node's cards, if it has its own
    free_cpu_milli: int | None = None  # None: not known
    free_main_mib: int | None = None
    address: str = ""
    cordons: Mapping[str, str] = {}  # why, by uuid of the card; empty: nobody said why

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a node needs a name")
        if len({card.uuid for card in self.cards}) != len(self.cards):
            raise ValueError(f"node {self.name}: two cards have the same uuid")
        if len({card.index for card in self.cards}) != len(self.cards):
            raise ValueError(f"node {self.name}: two cards have the same index")
