"""What a dialect is, and the facts that it gets.

A dialect owns everything that is its own: the names of its resources with their ranges, the
annotations and labels that it reads, what the labels of a node mean in its language
(:mod:`partage.dialects.modes`), what it offers and writes on nodes, and whether agents serve it by
default. Nobody else spells these names: the extender, the agent and the command line ask
:mod:`partage.dialects.registry`, which asks the dialects. So a new family is one module in
:mod:`partage.dialects.families` and one entry in ``registry.DIALECTS``.

Most of that is data. Three questions are code: what does this pod ask for, what is written on it
when it is bound, and which cards does it have if the family's own system placed it. Families that
write nothing, or whose records nobody published, inherit the empty answer.

Facts come in as frozen structs, one for each occasion, so that no dialect has arguments that only
another one needs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar, Protocol

import msgspec

from partage.core import cards, demands, errors, grants
from partage.dialects import compute_policies, model_speeds, modes, nodes, pods, rules

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
UNIT_LABEL = "partage.dev/memory-unit"  # of nodes that serve a resource in the cluster's unit
UNITS_MIB = {"GiB": 1024, "MiB": 1}  # the units that a cluster can choose


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the administrator of a cluster may choose."""

    # Of resources whose names do not say what they count: GiB, or 1 where the plugin counts MiB.
    memory_unit_mib: int = 1024
    qgpu_max_cards: int = 2  # among which one qGPU slice may be split
    policies: tuple[str, ...] = ("binpack", "priced", "spread")  # names that pods may ask for
    hami_split: int = 10  # how many pods of HAMi a card can have at most; HAMi's own default
    t9k_label: bool = False  # whether nodes get the label that T9k's documentation asks for
    # What cards compute, for claims that ask for it: patterns of models, the first that fits.
    tflops: tuple[model_speeds.Speed, ...] = model_speeds.SPEEDS


def unit_name(unit_mib: int) -> str:
    """The name of a unit that a cluster can choose."""
    return next(name for name, mib in UNITS_MIB.items() if mib == unit_mib)


def other_unit(settings: Settings) -> Settings:
    """The same settings for a cluster that counts memory in the other of the two units."""
    unit = 1 if settings.memory_unit_mib != 1 else 1024
    return msgspec.structs.replace(settings, memory_unit_mib=unit)


class Counted(enum.StrEnum):
    """What an amount counts that a claim asks for."""

    CARDS = "cards"
    COMPUTE = "compute"
    MEMORY = "memory"
    TFLOPS = "tflops"


class Measure(msgspec.Struct, frozen=True):
    """What one unit of a resource is, where its name alone says it."""

    counted: Counted
    unit_mib: int = 0  # of memory


CARDS = Measure(Counted.CARDS)
COMPUTE = Measure(Counted.COMPUTE)  # in percent of a card
TFLOPS = Measure(Counted.TFLOPS)


def memory(unit_mib: int) -> Measure:
    """Memory in units of this size."""
    return Measure(Counted.MEMORY, unit_mib)


class Provisioner(msgspec.Struct, frozen=True, kw_only=True):
    """What a family gives to claims: the names by which a class asks for it, and its rules."""

    names: tuple[str, ...]
    source: str  # the field of an ElasticGPU that describes such a share
    needs: tuple[str, ...] = ()  # resources without which a share is not complete
    compute_step: int = 1
    most_tenants: int = 0
    whole_only: bool = False  # cards, and no shares of them


class Request(msgspec.Struct, frozen=True):
    """A pod, and its amounts in the words of one dialect."""

    pod: pods.Pod
    askings: tuple[rules.Asking, ...]
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


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when the agent of a node describes it to the cluster."""

    node: cards.Node
    labels: Mapping[str, str]  # that the node has now
    settings: Settings
    served: bool  # whether the node serves the dialect


class Marks(msgspec.Struct, frozen=True):
    """What is written on a pod."""

    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}


class Caution(msgspec.Struct, frozen=True, kw_only=True):
    """What the user should know about a request that is allowed."""

    field: str = ""  # empty: the pod as a whole
    problem: str
    instead: str = ""  # what to write in a manifest

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        return f"{where}{self.problem}; {self.instead}" if self.instead else where + self.problem


class Dialect(Protocol):
    """One family of request names."""

    name: ClassVar[str]
    resources: ClassVar[Mapping[str, rules.Range]]
    # Resources that pods of the family name, and that have no effect.
    inert_resources: ClassVar[frozenset[str]] = frozenset()
    # The resource, if any, that is counted in the unit that the cluster chose.
    unit_resource: ClassVar[str] = ""
    # Resources that another vendor's plugin serves, too; where it is installed they are left to it.
    vendor_resources: ClassVar[frozenset[str]] = frozenset()
    # How the names of the annotations begin that the family reads; no others are kept.
    annotation_prefixes: ClassVar[tuple[str, ...]] = ()
    # How the names of the annotations begin by which a pod asks for cards without a resource.
    asking_annotations: ClassVar[tuple[str, ...]] = ()
    # Whether what its containers have is counted with their pod; else it is another's grant.
    counts: ClassVar[bool] = True
    # What the family's resources are in a claim; those whose names do not say it are not here.
    measures: ClassVar[Mapping[str, Measure]] = {}
    # What the family gives to claims, if it does.
    provisioner: ClassVar[Provisioner | None] = None
    # Annotations that record a grant: their values say nothing of what a pod asks for.
    record_annotations: ClassVar[frozenset[str]] = frozenset()
    # The labels of pods that the family reads.
    pod_labels: ClassVar[frozenset[str]] = frozenset()
    # Of these labels the one that names the group which a pod belongs to, if any does.
    group_label: ClassVar[str] = ""
    # The schedulerName that the family's pods are expected to have.
    scheduler_name: ClassVar[str] = ""
    # Whether agents serve the family unless their administrator says which they serve.
    served_by_default: ClassVar[bool] = True
    # The variables by which containers of the family say how much compute they want beside others.
    compute_variables: ClassVar[compute_policies.Variables] = compute_policies.NO_VARIABLES
    # What labels of nodes mean to the family.
    modes: ClassVar[tuple[modes.Mode, ...]] = ()

    def speaks(self, pod: pods.Pod) -> bool:
        """Whether the pod asks for cards in this dialect."""
        return bool(rules.first_field(pod, self.resources))

    def demand(self, request: Request, /) -> demands.PodDemand:
        """What the pod asks for; raises DemandError if the family does not allow it."""
        ...

    def refusing(self, resources: Collection[str], *, cards: int = 1) -> tuple[str, ...]:
        """The traits of nodes that do not serve these resources, in shares of so many cards."""
        return tuple(
            mode.trait
            for mode in self.modes
            if not mode.withheld.isdisjoint(resources) or (cards > 1 and not mode.several_cards)
        )

    def taints(self, labels: Mapping[str, str], /) -> tuple[nodes.Taint, ...]:
        """The taints that a node with these labels is to have; the extender puts them there."""
        return tuple(
            mode.taint for mode in self.modes if mode.taint is not None and mode.set_by(labels)
        )

    def other_vendor(self, _labels: Mapping[str, str], /) -> str:
        """The label by which a node is said to have another vendor's cards; empty if none does."""
        return ""

    def implied(self, _resources: Collection[str], /) -> dict[str, int]:
        """What a container that names these resources asks for besides, and need not write.

        The kubelet gives devices by the resources that are written, so admission writes it.
        """
        return {}

    def implied_in(self, _pod: pods.Pod, /) -> Mapping[str, Mapping[str, int]]:
        """The same for what a pod says elsewhere, in annotations; by container."""
        return {}

    def warnings(self, _request: Request, /) -> tuple[Caution, ...]:
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
        """How much of each resource the node's device plugins offer, if no mode withholds it.

        It is what the kubelet counts by, and the most that could be asked for if nobody else asked
        in other words: which card has room is decided elsewhere.
        """
        return {}

    def reported(self, _node: cards.Node, /) -> dict[str, int]:
        """The amounts that the family writes into the status of a node, without a plugin."""
        return {}

    def node_labels(self, _described: Described, /) -> dict[str, str]:
        """The labels by which the family's users and tools choose nodes such as this one.

        Every dialect is asked, because people may select nodes by labels of a family in whose words
        no pod asks.
        """
        return {}

    def unit_mib(self, _node: nodes.Node, /) -> int | None:
        """In which unit the plugin of a node counts ``unit_resource``; None if it does not say."""
        return None

    def granted(self, _request: Request, _node: cards.Node, /) -> grants.Grant | None:
        """The grant that the family's own system recorded on a bound pod; None if it did not.

        Raises :class:`partage.dialects.records.Unreadable` where the record makes no sense.
        """
        return None


def containers(
    request: Request, read: Callable[[rules.Asking], demands.Demand]
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
        f"node {node.name} no longer has card {uuid}",
        instead="delete the pod so that it is placed again",
    )
