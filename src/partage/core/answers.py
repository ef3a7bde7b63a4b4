"""Answers: for each shape of demand that was asked about, the nodes that fit and their rank.

A question about a known shape costs a look at the nodes that changed since it was last asked; only
a shape never seen before, or a policy that changed its mind, costs a look at all of them. How many
shapes are kept is bounded, because tenants write them: the one not asked for longest goes first.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Container
from typing import Any

from partage.core import demands, fitting, plans, ranking, searching
from partage.core.inventory import Inventory
from partage.core.policies import base
from partage.core.rooms import NodeState

MOST_SHAPES = 256

Offer = tuple[int, Any]  # whether qualities of service mix, and the policy's own terms
_UNKNOWN: Any = object()


class Answers:
    """Ranks by shape, kept in step with an inventory."""

    def __init__(
        self, inventory: Inventory, policies: dict[str, base.Policy[Any]], default: str
    ) -> None:
        self._inventory = inventory
        self._policies = policies
        self._default = default
        self._plans: dict[demands.PodDemand, plans.Plan] = {}
        self._offers: dict[plans.Plan, _Offers] = {}
        self._asked: collections.OrderedDict[demands.PodDemand, _Asked] = collections.OrderedDict()

    def best(
        self, pod: demands.PodDemand, *, limit: int, among: Container[str] | None
    ) -> list[str]:
        """The best nodes, best first."""
        return self.rank(pod).best(self._inventory.names, limit, among)

    def rank(self, pod: demands.PodDemand) -> ranking.Rank:
        """The up-to-date rank of the pod's shape."""
        shape = self._shape(pod)
        asked = self._asked.get(shape)
        journal = self._inventory.journal
        nodes = len(self._inventory.states)
        changed = None if asked is None else journal.since(asked.rank.seen)
        if asked is None or changed is None:
            asked = self._ask(shape)
        elif changed:
            asked.rank.refresh(asked.rate, changed, nodes, seen=journal.end)
        self._asked.move_to_end(shape)
        return asked.rank

    def place(self, state: NodeState, pod: demands.PodDemand) -> searching.Chosen | None:
        """The cards the pod gets on a node, the same that its rank was made from."""
        return fitting.place(state, self._plan(pod), self.card_policy(state, pod))

    def prepare(self, pod: demands.PodDemand) -> None:
        """Bring one rank up to date before it is asked for."""
        self.rank(pod)

    def forget(self) -> list[demands.PodDemand]:
        """Drop everything, for the policies changed; says which shapes were known, latest first."""
        known = list(reversed(self._asked))
        self._asked.clear()
        self._plans.clear()
        self._offers.clear()
        for state in self._inventory.present():
            state.digest = None
        return known

    def card_policy(self, state: NodeState, pod: demands.PodDemand) -> base.Policy[Any]:
        """Who chooses the cards: the pod, else the node, else whoever chooses the node."""
        name = pod.cards_by or state.node.cards_by or pod.nodes_by or self._default
        return self._policies[name]

    def _shape(self, pod: demands.PodDemand) -> demands.PodDemand:
        policy = self._policies[pod.nodes_by or self._default]
        return demands.shape(pod, policy.reads_cpu, policy.reads_main)

    def _ask(self, shape: demands.PodDemand) -> _Asked:
        plan = self._plan(shape)
        offers = self._offers[plan]
        rate = self._rating(shape, plan, offers)
        nodes = len(self._inventory.states)
        offers.begin(nodes)
        asked = _Asked(rate, ranking.Rank(rate, nodes, seen=self._inventory.journal.end))
        offers.end()
        self._asked[shape] = asked
        if len(self._asked) > MOST_SHAPES:
            self._asked.popitem(last=False)
        return asked

    def _rating(
        self, shape: demands.PodDemand, plan: plans.Plan, offers: _Offers
    ) -> Callable[[int], int | None]:
        policy = self._policies[shape.nodes_by or self._default]
        states, known = self._inventory.states, offers.known
        node_key: Callable[[NodeState, demands.PodDemand, Any], int] = policy.node_key
        least_mib, least_empties = plan.least_mib, plan.least_empties

        def rate(ordinal: int) -> int | None:
            state = states[ordinal]
            if state is None or state.most_free_mib < least_mib or state.empties < least_empties:
                return None
            offer = known.get(state.look_id, _UNKNOWN)
            if offer is _UNKNOWN:
                offer = self._offer(state, plan, policy)
                if offers.keep:
                    known[state.look_id] = offer
            if offer is None:
                return None
            mixed: int = offer[0]
            key = node_key(state, shape, offer[1]) + mixed
            return (key << ranking.ORDINAL_BITS) | ordinal

        return rate

    def _offer(self, state: NodeState, plan: plans.Plan, policy: base.Policy[Any]) -> Offer | None:
        chosen = fitting.place(state, plan, self.card_policy(state, plan.pod))
        if chosen is None:
            return None
        mixes = state.qos_bits & plan.other_qos_bits and fitting.mixes(state, plan, chosen)
        return ranking.MIXED if mixes else 0, policy.offer(state, plan, chosen)

    def _plan(self, pod: demands.PodDemand) -> plans.Plan:
        """Shapes that ask the same of cards share one plan, and so what nodes offer for it."""
        bare = demands.shape(pod, False, False)
        plan = self._plans.get(bare)
        if plan is None:
            if len(self._plans) >= MOST_SHAPES:
                self.forget()
            plan = self._plans[bare] = plans.Plan(bare)
            self._offers[plan] = _Offers(plan)
        return plan


class _Offers:
    """What nodes offer for one plan, by their look.

    While a rank is made, equal nodes need to be looked at once. Beyond that, offers are worth
    their memory only if several shapes share the plan.
    """

    __slots__ = ("_by_look", "_most", "_shapes", "keep", "known")

    def __init__(self, plan: plans.Plan) -> None:
        self.known: dict[int, Offer | None] = {}
        self.keep = False
        self._by_look = not plan.by_uuid  # a plan that names cards can tell equal looks apart
        self._shapes = 0

    def begin(self, nodes: int) -> None:
        """A rank is going to be made."""
        self._shapes += 1
        self.keep = self._by_look
        if len(self.known) > 2 * nodes:
            self.known.clear()

    def end(self) -> None:
        """The rank is made."""
        if self._shapes == 1:
            self.keep = False
            self.known.clear()


class _Asked:
    """One shape: how to rate a node for it, and the rank so far."""

    __slots__ = ("rank", "rate")

    def __init__(self, rate: Callable[[int], int | None], rank: ranking.Rank) -> None:
        self.rate = rate
        self.rank = rank
