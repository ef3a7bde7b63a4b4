"""Known cards: whether any node of the cluster could ever take a pod.

A fleet of all nodes with nobody on them answers that, with the fitting that decides everywhere
else. It is only asked for what can *never* fit: whether there is room now is not the affair of
admission, and a pod that has to wait is welcome. Until the nodes have been read, everything is.
The same fleet knows the totals of namespaces, and says what one of them may never have.

The nodes also say in which unit the cluster counts memory, where the names do not.
"""

from __future__ import annotations

from collections.abc import Collection

from partage.admission import known_totals
from partage.core import demands, fleet, refusals, totals
from partage.dialects import contract, memory_units, node_readings, nodes

_COMPARED = 32  # nodes, to find the one that lacks least; enough for a good text
_MOST_ANSWERS = 256  # that are kept; tenants write what is asked


class KnownCards:
    """The nodes of the cluster with their cards; a sink for a reflector."""

    def __init__(self, unit: memory_units.Unit) -> None:
        self._unit = unit
        self._fleet = fleet.standard()
        self.totals = known_totals.KnownTotals(self._fleet.set_total)
        self._names: set[str] = set()
        self._with_cards: set[str] = set()
        self._answers: dict[demands.PodDemand, refusals.Refusal | None] = {}

    @property
    def settings(self) -> contract.Settings:
        """How requests are read, in the cluster's unit."""
        return self._unit.settings

    def put(self, node: nodes.Node) -> None:
        """A node is there, with these cards."""
        name, in_fleet = node.metadata.name, node_readings.read(node).node
        self._unit.vote(name, node)
        before = self._fleet.state(name)
        if before is not None and before.node == in_fleet:
            return  # a heartbeat
        self._answers.clear()
        self._fleet.set_node(in_fleet)
        self._names.add(name)
        if in_fleet.cards:
            self._with_cards.add(name)
        else:
            self._with_cards.discard(name)

    def drop(self, name: str) -> None:
        """A node is gone."""
        self._unit.vote(name, None)
        self._answers.clear()
        self._fleet.remove_node(name)
        self._names.discard(name)
        self._with_cards.discard(name)

    def keys(self) -> Collection[str]:
        """The names of all nodes."""
        return self._names

    def never(self, demand: demands.PodDemand) -> refusals.Refusal | None:
        """Why no node can ever take the pod; None if one can, or if no card is known yet.

        A refusal is looked for on all nodes, so it is kept until one of them changes: a client
        that submits the same pod again and again must not keep the others waiting.
        """
        if demand not in self._answers:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            self._answers[demand] = self._looked_for(demand)
        return self._answers[demand]

    def _looked_for(self, demand: demands.PodDemand) -> refusals.Refusal | None:
        if not self._with_cards or self._fleet.best(demand):
            return None
        codes = list(self._fleet.reasons(demand, self._with_cards))
        furthest = max((code for _, code in codes), key=lambda code: code.distance)
        if not furthest.never:
            return None
        nearest = [name for name, code in codes if code is furthest][:_COMPARED]
        return refusals.furthest(self._fleet.refuse(demand, nearest))

    def beyond(self, demand: demands.PodDemand, namespace: str) -> totals.Excess | None:
        """Why a namespace may not have the pod, on any node, even if it had no other."""
        excesses = self._fleet.beyond(demand, namespace)
        if not excesses or self._fleet.best(demand, namespace=namespace):
            return None
        reasons = self._fleet.reasons(demand, self._with_cards)
        if any(not code.never for _, code in reasons):
            return None  # a node whose cards are not healthy now; they may be smaller
        return min(excesses.values(), key=lambda excess: excess.asks)
