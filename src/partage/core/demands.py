"""Demands: what the containers of a pod ask for, in neutral terms.

A dialect turns a pod into one PodDemand; from there on it does not matter which words the user
wrote. A Demand that contradicts itself (memory in MiB *and* in percent, an exclusive card with a
memory limit) cannot be constructed.

Two pods whose demands differ only in names, or in how a share is enforced later, fit in exactly the
same places. :func:`shape` takes those differences away, and the fleet keeps its answers per shape.
"""

from __future__ import annotations

import enum
import functools
import re

import msgspec

ALL_CARDS = 0


class Exclusive(enum.StrEnum):
    """Whether a demand excludes all others from its cards or its node."""

    NO = "no"
    CARD = "card"
    NODE = "node"


class Qos(enum.StrEnum):
    """Quality of service; the three are kept on different cards while that is possible."""

    ONLINE = "online"
    NORMAL = "normal"
    OFFLINE = "offline"


class Role(enum.StrEnum):
    """When a container runs: with all apps, alone before them, or from its turn to the end."""

    APP = "app"
    INIT = "init"
    SIDECAR = "sidecar"


class ComputeMode(enum.StrEnum):
    """How the fence treats compute; it has no influence on where a pod fits."""

    BEST_EFFORT = "best-effort"  # no limit
    FIXED = "fixed"  # never above the share
    BURST = "burst"  # the share is guaranteed, idle time usable up to the ceiling
    NODE = "node"  # as the node's administrator set it


class Demand(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What one container asks of each of its cards, and of how many."""

    cards: int = 1  # or ALL_CARDS: every card of the node
    memory_mib: int = 0
    memory_percent: int = 0
    compute_percent: int = 0  # 0: no part of the card's time is set aside
    compute_ceiling_percent: int = 0  # 0: none above compute_percent
    exclusive: Exclusive = Exclusive.NO
    compute_mode: ComputeMode = ComputeMode.BEST_EFFORT
    memory_enforced: bool = True
    max_tenants: int = 0  # 0: as many as the card takes; the least of a pod holds for all of it
    models: tuple[str, ...] = ()  # any of these patterns (fnmatch, case ignored); none: any model
    not_models: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    not_uuids: tuple[str, ...] = ()
    claim: str = ""  # namespace/name of a claim: what that has, and nothing else

    def __post_init__(self) -> None:
        problem = _contradiction(self)
        if problem:
            raise ValueError(problem)

    @property
    def whole(self) -> bool:
        """Whether it takes its cards for itself."""
        return self.exclusive is not Exclusive.NO


class ContainerDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """One container of a pod that asks for cards."""

    name: str
    demand: Demand
    role: Role = Role.APP


class PodDemand(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """The demands of one pod's containers, in the order in which they start, and their relation.

    Without containers it is a pod that wants no card; the simulator places those too.
    """

    containers: tuple[ContainerDemand, ...] = ()
    together: bool = False  # all containers on the same cards (gpushare), or each where it fits
    qos: Qos = Qos.NORMAL
    dialect: str = ""
    nodes_by: str = ""  # policies the pod itself asks for; empty: the fleet's
    cards_by: str = ""
    refused_by: tuple[str, ...] = ()  # node traits that rule a node out
    tag: str = ""  # what the pod is to its neighbours
    apart_from: tuple[tuple[str, str], ...] = ()  # (trait, tag): never beside on such a node
    spread_group: str = ""  # never on a card with another pod of the same group; empty: no group
    cpu_milli: int = 0
    main_mib: int = 0

    def __post_init__(self) -> None:
        if self.together and len({c.demand.cards for c in self.containers}) > 1:
            raise ValueError("containers on the same cards must ask for the same number of cards")
        shared = self.together and len(self.containers) > 1
        if shared and any(c.demand.whole for c in self.containers):
            raise ValueError("two containers cannot both have the same card for themselves")
        if self.by_claim and not all(c.demand.claim for c in self.containers):
            raise ValueError("a pod asks for cards by claims or by amounts, not by both")
        if self.exclusive_node and len(self.containers) > 1:
            raise ValueError("one container takes the whole node; no other may ask for cards")

    @property
    def by_claim(self) -> bool:
        """Whether it asks for what claims have; a pod asks by claims or by amounts, not by both."""
        return any(c.demand.claim for c in self.containers)

    @property
    def exclusive_node(self) -> bool:
        """Whether it wants the node for itself."""
        return any(c.demand.exclusive is Exclusive.NODE for c in self.containers)


def described(demand: Demand) -> str:
    """In words: ``1 card, 4096 MiB and 30 % compute``."""
    if demand.claim:
        return f"what claim {demand.claim} has"
    if demand.exclusive is Exclusive.NODE:
        return "a whole node"
    count = {ALL_CARDS: "all cards", 1: "1 card"}.get(demand.cards, f"{demand.cards} cards")
    if demand.whole:
        return f"{count}, whole"
    suffix = "" if demand.cards == 1 else " each"
    memory = (
        f"{demand.memory_mib} MiB" if demand.memory_mib else f"{demand.memory_percent} % memory"
    )
    parts = [memory] if demand.memory_mib or demand.memory_percent else []
    parts += [f"{demand.compute_percent} % compute"] if demand.compute_percent else []
    return f"{count}, {' and '.join(parts)}{suffix}"


def same_everywhere(pod: PodDemand) -> bool:
    """Whether the pod takes the same amounts on whichever cards it gets.

    Containers that may be apart do not: where they stand on one card, only the worst moment of them
    counts there.
    """
    fixed = all(
        c.demand.cards != ALL_CARDS and not c.demand.whole and not c.demand.memory_percent
        for c in pod.containers
    )
    return fixed and (pod.together or len(pod.containers) == 1)


def literally(model: str) -> str:
    """A model's name as a pattern that matches that name only."""
    return re.sub(r"([*?[])", r"[\1]", model)


@functools.lru_cache(maxsize=1024)
def shape(pod: PodDemand, cpu: bool, main: bool) -> PodDemand:
    """The same demand without what makes no difference to where it fits.

    CPU and main memory are kept if asked: not every policy reads them. Pods come in batches that
    look alike, so the last answers are kept.
    """
    containers = tuple(
        ContainerDemand(
            name="",
            role=container.role,
            demand=msgspec.structs.replace(
                container.demand,
                compute_ceiling_percent=0,
                compute_mode=ComputeMode.BEST_EFFORT,
                memory_enforced=True,
            ),
        )
        for container in pod.containers
    )
    return msgspec.structs.replace(
        pod,
        containers=containers,
        dialect="",
        tag="",
        cpu_milli=pod.cpu_milli if cpu else 0,
        main_mib=pod.main_mib if main else 0,
    )


def _contradiction(demand: Demand) -> str:
    if demand.cards < 0 or demand.memory_mib < 0 or demand.max_tenants < 0:
        return "a demand cannot be negative"
    if not 0 <= demand.memory_percent <= 100 or not 0 <= demand.compute_percent <= 100:
        return "a percentage of one card is between 0 and 100"
    if demand.memory_mib and demand.memory_percent:
        return "memory is asked for in MiB or in percent, not both"
    ceiling = demand.compute_ceiling_percent
    if ceiling and not demand.compute_percent <= ceiling <= 100:
        return "a compute ceiling lies between the share and 100"
    sliced = demand.memory_mib or demand.memory_percent or demand.compute_percent
    if demand.claim:
        both = sliced or demand.whole
        return "what a claim has is not asked for beside a share or a card" if both else ""
    if demand.whole and sliced:
        return "an exclusive card has no memory or compute share: it is all of it"
    if not demand.whole and not sliced:
        return "a demand that is not exclusive asks for memory or compute"
    if demand.exclusive is Exclusive.NODE and demand.cards != ALL_CARDS:
        return "an exclusive node has all its cards"
    return ""
