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

Offer = tuple[int, searching.Chosen, Any]  # mixing, cards, and what the policy makes of them
_UNKNOWN: Any = object()
_FEWEST_OFFERS = 1024


class Answers:
    """Ranks by shape, kept in step with an inventory."""

    def __init__(
        self, inventory: Inventory, policies: dict[str, base.Policy[Any]], default: str
    ) -> None:
        self._inventory = inventory
        self._policies = policies
        self._default = default
        self._plans: dict[demands.PodDemand, plans.Plan] = {}
        self._offers: dict[plans.Plan, dict[int, Offer | None]] = {}  # by look of the node
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
        plan = self._plan(pod)
        offer = self._offers[plan].get(state.look_id, _UNKNOWN)
        if offer is _UNKNOWN:
            offer = self._offer(state, plan)
        return None if offer is None else offer[1]

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
        rate = self._rating(shape)
        nodes = len(self._inventory.states)
        asked = _Asked(rate, ranking.Rank(rate, nodes, seen=self._inventory.journal.end))
        self._asked[shape] = asked
        if len(self._asked) > MOST_SHAPES:
            self._asked.popitem(last=False)
        return asked

    def _rating(self, shape: demands.PodDemand) -> Callable[[int], int | None]:
        plan = self._plan(shape)
        policy = self._policies[shape.nodes_by or self._default]
        states = self._inventory.states
        node_key: Callable[[NodeState, demands.PodDemand, Any], int] = policy.node_key
        offers = self._offers[plan]
        least_mib, least_empties = plan.least_mib, plan.least_empties

        def rate(ordinal: int) -> int | None:
            state = states[ordinal]
            if state is None or state.most_free_mib < least_mib or state.empties < least_empties:
                return None
            offer = offers.get(state.look_id, _UNKNOWN)
            if offer is _UNKNOWN:
                offer = self._offer(state, plan)
            if offer is None:
                return None
            mixed: int = offer[0]
            terms = offer[2]
            key = node_key(state, shape, terms) + mixed
            return (key << ranking.ORDINAL_BITS) | ordinal

        return rate

    def _offer(self, state: NodeState, plan: plans.Plan) -> Offer | None:
        """What a node offers; kept by its look, unless the plan can tell equal cards apart."""
        policy = self._policies[plan.pod.nodes_by or self._default]
        chosen = fitting.place(state, plan, self.card_policy(state, plan.pod))
        offer = None
        if chosen is not None:
            mixed = ranking.MIXED if fitting.mixes(state, plan, chosen) else 0
            offer = mixed, chosen, policy.offer(state, plan, chosen)
        if not plan.by_uuid:
            offers = self._offers[plan]
            if len(offers) >= max(_FEWEST_OFFERS, len(self._inventory.states)):
                offers.clear()
            offers[state.look_id] = offer
        return offer

    def _plan(self, pod: demands.PodDemand) -> plans.Plan:
        """Shapes that ask the same of cards share one plan, and so what nodes offer for it."""
        bare = demands.shape(pod, False, False)
        plan = self._plans.get(bare)
        if plan is None:
            if len(self._plans) >= MOST_SHAPES:
                self.forget()
            plan = self._plans[bare] = plans.Plan(bare)
            self._offers[plan] = {}
        return plan


class _Asked:
    """One shape: how to rate a node for it, and the rank so far."""

    __slots__ = ("rank", "rate")

    def __init__(self, rate: Callable[[int], int | None], rank: ranking.Rank) -> None:
        self.rate = rate
        self.rank = rank
