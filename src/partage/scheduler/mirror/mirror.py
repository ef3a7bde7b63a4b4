"""Mirror: the fleet, kept equal to what the API server has: nodes, pods, unhealthy cards, totals.

State is rebuilt from these alone; there is no other store. Each kind of object has a sink that a
reflector fills: :mod:`.node_sink`, :mod:`.pod_sink`, :mod:`.health_sink`, :mod:`.namespace_sink`. A
sink does not know the others. It reports what changed, and only the mirror knows what follows for
the rest.

What this process bound is known before the watch reports it. An older version of such a pod must
not undo that, so a pod that was bound stays bound until it is gone: Kubernetes never unbinds.
"""

from __future__ import annotations

from collections.abc import Callable

from partage.core import demand_mix, demands, fleet, grants, totals
from partage.dialects import contract, memory_units, nodes, pods
from partage.scheduler.mirror import (
    health_sink,
    namespace_sink,
    node_sink,
    pod_requests,
    pod_sink,
    problems,
)


class Mirror:
    """What is known of the cluster."""

    def __init__(
        self,
        fleet: fleet.Fleet,
        unit: memory_units.Unit,
        *,
        freed: Callable[[str], None] = lambda _node: None,
        seen: Callable[[nodes.Node], None] = lambda _node: None,
        removed: Callable[[str], None] = lambda _node: None,
    ) -> None:
        self.fleet = fleet
        # Called with the name of a node that has more room than before; without one where it is
        # the total of a namespace that changed.
        self.freed = freed
        self._removed = removed  # called with the name of a node that is gone
        self.mix = demand_mix.Mix()
        self.problems = problems.Problems()
        self._requests = pod_requests.PodRequests(unit)
        self.nodes = node_sink.NodeSink(
            self.problems,
            unit,
            changed=self._node_changed,
            removed=self._node_removed,
            opened=freed,
            seen=seen,
        )
        self.pods = pod_sink.PodSink(
            fleet,
            self.problems,
            self._requests,
            self.mix,
            load_changed=self._load_changed,
            freed=freed,
        )
        self.unhealthy = health_sink.HealthSink(
            self.problems, has_node=self._has_node, changed=self._health_changed
        )
        self.namespaces = namespace_sink.NamespaceSink(self.problems, changed=self._total_changed)

    @property
    def settings(self) -> contract.Settings:
        """The dialects' settings, with the unit of memory that the cluster counts in."""
        return self._requests.settings

    @property
    def waiting(self) -> dict[str, grants.Pod]:
        """The pods that ask for cards and are not bound, by uid."""
        return self.pods.waiting

    def demand(self, pod: pods.Pod, cards_by: str = "") -> demands.PodDemand | None:
        """What a pod asks for, its load included; raises DemandError.

        ``cards_by`` is the policy that chooses its cards if the pod names none itself.
        """
        return self._requests.demand(pod, cards_by)

    def bound_node(self, uid: str) -> str:
        """The node on which a pod's grant is confirmed; empty if there is none."""
        grant = None if self.fleet.hold_of(uid) else self.fleet.grant_of(uid)
        return "" if grant is None else grant.node

    def release(self, uid: str) -> None:
        """Give back what a pod has."""
        grant = self.fleet.release(uid)
        if grant is not None:
            self.freed(grant.node)

    def _node_changed(self, name: str, *, other_cards: bool) -> None:
        self._update(name)
        self.freed(name)
        self.unhealthy.judge(name)
        if other_cards:
            self._reread_pods(name)

    def _node_removed(self, name: str) -> None:
        self.fleet.remove_node(name)
        self.unhealthy.judge(name)
        self._removed(name)

    def _health_changed(self, name: str) -> None:
        if self._update(name):
            self.freed(name)

    def _total_changed(self, namespace: str, total: totals.Total | None) -> None:
        self.fleet.set_total(namespace, total)
        self.freed("")

    def _load_changed(self, name: str) -> None:
        self._update(name)

    def _has_node(self, name: str) -> bool:
        return self.fleet.state(name) is not None

    def _update(self, name: str) -> bool:
        """Hand what is known of a node now to the fleet; false if there is no such node."""
        node = self.nodes.facts(
            name, used=self.pods.used(name), unhealthy=self.unhealthy.cards(name)
        )
        if node is None:
            return False
        self.fleet.set_node(node)
        return True

    def _reread_pods(self, name: str) -> None:
        """Read the pods of a node again whose cards are other ones now."""
        state = self.fleet.state(name)
        if state is None:
            return
        for grant in list(state.grants.values()):
            moved = nodes.rebased(grant, state.node)
            if moved is not grant:
                self.fleet.rename(moved)
        self.pods.settle(name)
