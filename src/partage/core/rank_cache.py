"""The rank cache: for each shape of demand, the nodes that fit and their rank.

A question about a known shape costs a look at the nodes that changed since the last one; only a new
shape, or a policy that changed its mind, costs a look at all of them. How many shapes are kept is
bounded, because tenants write them: the one that was not asked for longest is dropped first.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

from partage.core import demands, ranking, refusals
from partage.core.inventory import Inventory
from partage.core.placement import arrangement, fitting, plans
from partage.core.placement.rooms import NodeState
from partage.core.policies import contract

MOST_SHAPES = 256
MOST_REASONS = 1 << 16
_FEW_OFFERS = 256

Offer = tuple[int, Any]  # whether qualities of service mix, and the policy's own terms
_UNKNOWN: Any = object()


class RankCache:
    """Ranks by shape, kept in step with an inventory."""

    def __init__(
        self, inventory: Inventory, policies: dict[str, contract.Policy[Any]], default: str
    ) -> None:
        self._inventory = inventory
        self._policies = policies
        self._default = default
        self._planned: collections.OrderedDict[demands.PodDemand, _Offers] = (
            collections.OrderedDict()
        )
        self._entries: collections.OrderedDict[demands.PodDemand, _Entry] = (
            collections.OrderedDict()
        )
        self._generation = 0  # of the policies
        self._reasons: dict[tuple[plans.Plan, int], refusals.Code] = {}  # by plan and look

    def best(
        self, demand: demands.PodDemand, *, limit: int, among: Container[str] | None
    ) -> list[str]:
        """The best nodes, best first."""
        return self.rank(demand).best(limit, among)

    def rank(self, demand: demands.PodDemand) -> ranking.Rank:
        """The up-to-date rank of the pod's shape."""
        shape = self._shape(demand)
        entry = self._entries.get(shape)
        journal = self._inventory.journal
        changed = None if entry is None else journal.since(entry.rank.seen)
        if entry is None or changed is None:
            entry = self._made(shape)
        elif changed:
            entry.rank.refresh(entry.rate, changed, seen=journal.end, reused=self._inventory.reused)
        self._entries.move_to_end(shape)
        return entry.rank

    def prepare(self, demand: demands.PodDemand) -> Iterator[None] | None:
        """What makes the rank of a pod's shape, step by step; None if there is one."""
        shape = self._shape(demand)
        return None if shape in self._entries else self._make(shape)

    def reasons(
        self, demand: demands.PodDemand, names: Iterable[str]
    ) -> Iterator[tuple[str, refusals.Code]]:
        """Why the pod does not fit, for each of the nodes on which it does not.

        A caller that lets others work between two of them may find that a node has room by then.
        """
        rank, plan = self.rank(demand), self._offers(demand).plan
        ordinals, states = self._inventory.ordinals, self._inventory.states
        for name in names:
            ordinal = ordinals.get(name)
            state = None if ordinal is None else states[ordinal]
            if ordinal is None or state is None:
                yield name, refusals.Code.NO_NODES
            elif not rank.has(ordinal):
                code = self._reason(state, plan)
                if code is not None:
                    yield name, code

    def place(self, state: NodeState, demand: demands.PodDemand) -> arrangement.Chosen | None:
        """The cards the pod gets on a node, the same that its rank was made from."""
        return fitting.place(state, self._offers(demand).plan, self.card_policy(state, demand))

    def forget(self) -> list[demands.PodDemand]:
        """Drop everything, for the policies changed; the shapes that were kept, latest first."""
        self._generation += 1
        shapes = list(reversed(self._entries))
        self._entries.clear()
        self._planned.clear()
        self._reasons.clear()
        for state in self._inventory.present():
            state.digest = None
        return shapes

    def card_policy(self, state: NodeState, demand: demands.PodDemand) -> contract.Policy[Any]:
        """The policy that chooses the cards: the pod's, else the node's, else that of the nodes."""
        name = demand.cards_by or state.node.cards_by or demand.nodes_by
        return self._policy(name)

    def _policy(self, name: str) -> contract.Policy[Any]:
        """A policy by name; a name that does not exist means the default."""
        return self._policies.get(name) or self._policies[self._default]

    def _shape(self, demand: demands.PodDemand) -> demands.PodDemand:
        policy = self._policy(demand.nodes_by)
        return demands.shape(demand, policy.reads_cpu, policy.reads_main)

    def _made(self, shape: demands.PodDemand) -> _Entry:
        for _ in self._make(shape):
            pass
        return self._entries[shape]

    def _make(self, shape: demands.PodDemand) -> Iterator[None]:
        """Make a rank, a few nodes with each step."""
        offers, inventory = self._offers(shape), self._inventory
        rate = self._rating(shape, offers)
        rank = ranking.Rank(inventory.names, seen=inventory.journal.end, reused=inventory.reused)
        generation = self._generation
        offers.begin(shape, len(inventory.states))
        yield from rank.build(rate)
        offers.end()
        if generation != self._generation:
            return  # the opinions that it was made from are not held any more
        self._entries[shape] = _Entry(rate, rank)
        if len(self._entries) > MOST_SHAPES:
            self._entries.popitem(last=False)

    def _rating(self, shape: demands.PodDemand, offers: _Offers) -> Callable[[int], int | None]:
        policy = self._policy(shape.nodes_by)
        states, by_look, plan = self._inventory.states, offers.by_look, offers.plan
        node_key: Callable[[NodeState, demands.PodDemand, Any], int] = policy.node_key
        least_mib, least_empties = plan.least_mib, plan.least_empties

        def rate(ordinal: int) -> int | None:
            state = states[ordinal]
            if state is None or state.most_free_mib < least_mib or state.empties < least_empties:
                return None
            offer = by_look.get(state.look_id, _UNKNOWN)
            if offer is _UNKNOWN:
                offer = self._offer(state, plan, policy)
                offers.remember(state.look_id, offer)
            if offer is None:
                return None
            mixed: int = offer[0]
            key = node_key(state, shape, offer[1]) + mixed
            return (key << ranking.ORDINAL_BITS) | ordinal

        return rate

    def _offer(
        self, state: NodeState, plan: plans.Plan, policy: contract.Policy[Any]
    ) -> Offer | None:
        chosen = fitting.place(state, plan, self.card_policy(state, plan.pod))
        if chosen is None:
            return None
        mixes = state.qos_bits & plan.other_qos_bits and fitting.mixes(state, plan, chosen)
        return ranking.MIXED if mixes else 0, policy.offer(state, plan, chosen)

    def _reason(self, state: NodeState, plan: plans.Plan) -> refusals.Code | None:
        code = None if plan.by_uuid else self._reasons.get((plan, state.look_id))
        if code is not None:
            return code
        refusal = refusals.refuse(state, plan, self.card_policy(state, plan.pod))
        if refusal is None:
            return None
        if len(self._reasons) >= MOST_REASONS:
            self._reasons.clear()
        self._reasons[plan, state.look_id] = refusal.code
        return refusal.code

    def _offers(self, demand: demands.PodDemand) -> _Offers:
        """Shapes that ask the same of cards share one plan, and what nodes offer for it."""
        bare = demands.shape(demand, False, False)
        offers = self._planned.get(bare)
        if offers is None:
            offers = self._planned[bare] = _Offers(plans.Plan(bare))
            if len(self._planned) > MOST_SHAPES:
                self._planned.popitem(last=False)
        else:
            self._planned.move_to_end(bare)
        return offers


class _Offers:
    """What nodes offer for one plan, by their look.

    While a rank is made, nodes that look the same need to be looked at once. Beyond that, offers
    are worth their memory only if several shapes share the plan.
    """

    __slots__ = ("_first", "_keep", "_most", "_shared", "by_look", "plan")

    def __init__(self, plan: plans.Plan) -> None:
        self.plan = plan
        self.by_look: dict[int, Offer | None] = {}
        self._first: demands.PodDemand | None = None
        self._shared = self._keep = False
        self._most = 0

    def begin(self, shape: demands.PodDemand, nodes: int) -> None:
        """A rank is going to be made for a shape."""
        self._shared = self._shared or (self._first is not None and shape != self._first)
        self._first = self._first or shape
        # A plan that names cards can tell equal looks apart; one without cards looks at the CPU.
        self._keep = not self.plan.by_uuid and bool(self.plan.parts)
        self._most = 2 * nodes

    def remember(self, look_id: int, offer: Offer | None) -> None:
        """Keep an offer, if it is likely to be asked for again."""
        if self._keep:
            if len(self.by_look) >= self._most:
                self.by_look.clear()
            self.by_look[look_id] = offer

    def end(self) -> None:
        """The rank is made; a few offers are kept for nodes that come to look like others."""
        if not self._shared:
            self._most = _FEW_OFFERS
            if len(self.by_look) > self._most:
                self.by_look.clear()


class _Entry:
    """One shape: how to rate a node for it, and the rank so far."""

    __slots__ = ("rank", "rate")

    def __init__(self, rate: Callable[[int], int | None], rank: ranking.Rank) -> None:
        self.rate = rate
        self.rank = rank
