"""What every policy answers."""

from __future__ import annotations

from typing import Protocol, TypeVar

from partage.core import demands
from partage.core.placement.arrangement import Chosen
from partage.core.placement.plans import Plan
from partage.core.placement.rooms import NodeState, Room

KEY_BITS = 60
LARGEST_KEY = (1 << KEY_BITS) - 1


OfferT = TypeVar("OfferT")


class Policy(Protocol[OfferT]):
    """A way to choose; the fleet may hold several, by name.

    A node is rated in two steps, because pods that ask for the same of a card often differ in the
    CPU they want: what a placement does to the cards is an *offer*, and it can be kept until a card
    changes; what it is worth for one pod is the *key*.
    """

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    @property
    def reads_cpu(self) -> bool:
        """Whether keys depend on a pod's CPU; if not, pods that differ in it share one rank."""
        ...

    @property
    def reads_main(self) -> bool:
        """The same for main memory."""
        ...

    def card_key(self, room: Room, memory_mib: int, compute_percent: int) -> int:
        """How good a card is for this need; lower is better, ties go to the lower index."""
        ...

    def offer(self, state: NodeState, plan: Plan, chosen: Chosen) -> OfferT:
        """What placing the pod on the chosen cards means, as far as cards go."""
        ...

    def node_key(self, state: NodeState, pod: demands.PodDemand, offer: OfferT) -> int:
        """How good a node is, given its offer: 0 (best) to LARGEST_KEY."""
        ...
