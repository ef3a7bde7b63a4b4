"""What a dialect is, and what it is told.

Most of a dialect is data: its resources with their ranges, and what the labels of a node mean in
its language. Three questions are code: what does this pod ask for, what is written on it when it is
bound, and which cards does it have if the family's own system placed it. Families that write
nothing, or whose records nobody published, inherit the empty answer.

Facts come in as frozen structs, one for each occasion, so that no dialect has arguments that only
another one needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol

import msgspec

from partage.core import cards, demands, errors, grants
from partage.dialects import nodes, pods, reading

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the administrator of a cluster may choose."""

    memory_unit_mib: int = 1024  # of aliyun.com/gpu-mem: GiB, or 1 where the plugin counts MiB
    qgpu_max_cards: int = 2  # among which one qGPU slice may be split
    policies: tuple[str, ...] = ("binpack", "priced", "spread")  # names that pods may ask for
    hami_split: int = 10  # how many pods of HAMi a card can have at most; HAMi's own default


def other_unit(settings: Settings) -> Settings:
    """The same settings for a cluster that counts memory in the other of the two units."""
    unit = 1 if settings.memory_unit_mib != 1 else 1024
    return msgspec.structs.replace(settings, memory_unit_mib=unit)


class Request(msgspec.Struct, frozen=True):
    """A pod, and its amounts in the words of one dialect."""

    pod: pods.Pod
    askings: tuple[reading.Asking, ...]
    settings: Settings


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when a pod is bound to a node with its grant."""

    grant: grants.Grant
    pod: pods.Pod
    node: cards.Node
    now_ns: int
    settings: Settings


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when one container of a grant is about to start."""

    grant: grants.Grant
    container: grants.ContainerGrant
    node: cards.Node
    settings: Settings


class Marks(msgspec.Struct, frozen=True):
    """What is written on a pod."""

    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}


class Dialect(Protocol):
    """One family of request names."""

    name: ClassVar[str]
    resources: ClassVar[Mapping[str, reading.Range]]
    # What (label, value) of a node means: a trait, as demands and grants know it.
    traits: ClassVar[Mapping[tuple[str, str], str]] = {}
    # Which (label, value) of a node names the policy that chooses among its cards.
    placements: ClassVar[Mapping[tuple[str, str], str]] = {}
    # What ComputeMode.NODE stands for on a node with a trait; best effort where none says more.
    compute_modes: ClassVar[Mapping[str, demands.ComputeMode]] = {}
    # Traits of nodes on which memory is a promise among users, and not enforced.
    advisory: ClassVar[frozenset[str]] = frozenset()

    def speaks(self, pod: pods.Pod) -> bool:
        """Whether the pod asks for cards in this dialect."""
        return bool(reading.first_field(pod, self.resources))

    def demand(self, request: Request, /) -> demands.PodDemand:
        """What the pod asks for; raises DemandError if the family does not allow it."""
        ...

    def warnings(self, _request: Request, /) -> tuple[str, ...]:
        """What the user should know about a request that is allowed."""
        return ()

    def marks(self, _bound: Bound, /) -> Marks:
        """The family's own annotations and labels for a pod that is being bound."""
        return Marks()

    def assigned(self) -> dict[str, str]:
        """The annotations that change when the pod's containers have been given their cards."""
        return {}

    def environment(self, start: Start, /) -> dict[str, str]:
        """The environment of one container; cards by uuid, as indexes differ between tools."""
        return {VISIBLE_DEVICES: ",".join(share.uuid for share in start.container.shares)}

    def advertised(self, _node: nodes.Node, /) -> tuple[cards.Card, ...]:
        """The cards that the family's own plugin says a node has; none if it does not say.

        Raises :class:`partage.dialects.nodes.Unreadable` where what it says makes no sense.
        """
        return ()

    def offered(self, _node: cards.Node, _settings: Settings, /) -> dict[str, int]:
        """How much of each resource the node's device plugins offer, by the family's units.

        It is what the kubelet counts by, and the most that could be asked for if nobody else asked
        in other words: which card has room is decided elsewhere.
        """
        return {}

    def reported(self, _node: cards.Node, /) -> dict[str, int]:
        """The amounts that the family writes into the status of a node, without a plugin."""
        return {}

    def granted(self, _request: Request, _node: cards.Node, /) -> grants.Grant | None:
        """The grant that the family's own system recorded on a bound pod; None if it did not.

        Raises :class:`partage.dialects.records.Unreadable` where the record makes no sense.
        """
        return None


def containers(
    request: Request, read: Callable[[reading.Asking], demands.Demand]
) -> tuple[demands.ContainerDemand, ...]:
    """The demand of each container that asks, in the order in which they start."""
    return tuple(
        demands.ContainerDemand(asking.name, read(asking), asking.role)
        for asking in request.askings
    )


def percents(node: cards.Node) -> int:
    """All cards of a node, in percent of one."""
    return cards.FULL_PERCENT * len(node.cards)


def units(node: cards.Node, unit_mib: int) -> int:
    """The memory of all cards in units, of which each must lie on one card."""
    return sum(card.memory_mib // unit_mib for card in node.cards)


def card(node: cards.Node, uuid: str) -> cards.Card:
    """The card of a share; a grant may outlive its card, but nothing can start on it then."""
    for candidate in node.cards:
        if candidate.uuid == uuid:
            return candidate
    raise errors.LedgerError(
        f"node {node.name} no longer has card {uuid}", instead="delete the pod to place it anew"
    )
