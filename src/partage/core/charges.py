"""Charges: what a pod would take of its namespace's total, node by node.

A share in MiB takes the same wherever it lands; a whole card, or a percentage of one, takes what
the card has. So the question is asked of each node on which the pod fits, and answered once for
nodes that look the same, as these give the same cards.
"""

from __future__ import annotations

from partage.core import accounts, demands, grants, rank_cache, totals
from partage.core.placement import fitting
from partage.core.placement.rooms import NodeState

_ANYWHERE = -1
_ANYBODY = grants.Pod("")


class Charges:
    """The charges for one demand; for one question, as the next one finds other rooms."""

    def __init__(
        self, account: accounts.Account, ranks: rank_cache.RankCache, demand: demands.PodDemand
    ) -> None:
        self._account = account
        self._ranks = ranks
        self._demand = demand
        self._same = demands.same_everywhere(demand)
        self._by_uuid = any(c.demand.uuids or c.demand.not_uuids for c in demand.containers)
        self._answers: dict[int | str, totals.Excess | None] = {}

    def excess(self, state: NodeState) -> totals.Excess | None:
        """Why the namespace may not have what the pod takes on a node on which it fits."""
        key = self._key(state)
        if key not in self._answers:
            self._answers[key] = self._account.excess(self._charge(state))
        return self._answers[key]

    def _key(self, state: NodeState) -> int | str:
        if self._same:
            return _ANYWHERE
        return state.node.name if self._by_uuid else state.look_id

    def _charge(self, state: NodeState) -> totals.Sums:
        chosen = self._ranks.place(state, self._demand)
        if chosen is None:
            return totals.NOTHING
        return totals.of(fitting.grant(state, self._demand, chosen, pod=_ANYBODY, policy=""))
