"""Decisions: which nodes a pod may go to, with a hold on the best of them.

kube-scheduler binds in the background: the filter of the next pod comes before the bind of this
one. So each filter that finds room reserves it, in place of whatever the same pod had reserved
before. Bind moves the hold to the node that kube-scheduler names, and a hold that is never bound
expires.

A pod whose namespace has a total goes only where it stays within it. The hold itself makes sure of
that, in the step in which it is made (:meth:`partage.core.fleet.Fleet.hold`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container

import msgspec

from partage.core import demands, errors, grants
from partage.dialects import pods
from partage.scheduler.binds import bind_states
from partage.scheduler.claims import claim_grants
from partage.scheduler.mirror import mirror as mirrors


class Verdict(msgspec.Struct, frozen=True):
    """Where a pod may go."""

    nodes: list[str] = []  # best first
    placed: str = ""  # the only node that will do: the pod is bound there, or may be
    waits_for: str = ""  # why it can go nowhere, if it is not for want of room


class Decider:
    """Decides, and nothing else."""

    def __init__(
        self,
        mirror: mirrors.Mirror,
        binds: bind_states.Binds,
        *,
        claims: claim_grants.ClaimGrants | None = None,
        refused: Callable[[demands.PodDemand, str], None] = lambda _demand, _namespace: None,
    ) -> None:
        self._mirror = mirror
        self._fleet = mirror.fleet
        self._binds = binds
        self._claims = claims
        # Called with what did not fit, and with the namespace if that has a total.
        self._refused = refused

    def choose(
        self, pod: pods.Pod, demand: demands.PodDemand, among: Collection[str], limit: int
    ) -> Verdict:
        """The best nodes for what a pod asks for, with a hold on the first."""
        if not pod.spec.node_name:  # kube-scheduler asks about no other
            self._binds.seen(pod)
        placed = self._binds.placed_on(pod.metadata.uid)
        if placed:
            nodes = [placed] if placed in among else []
            if not nodes and not demand.by_claim:
                self._refused(demand, "")
            return Verdict(nodes, placed)
        if demand.by_claim:
            return self._by_claim(pod, demand, among)
        before = self._binds.lift(pod.metadata.uid)  # its own hold must not stand in its way
        space = pod.metadata.namespace
        nodes = self._fleet.best(demand, limit=limit, among=among, namespace=space)
        if nodes:
            self._binds.hold(pod, demand, nodes[0])
        else:
            self._refused(demand, space if self._fleet.account(space) else "")
        if before and before not in nodes[:1]:
            self._mirror.freed(before)
        return Verdict(nodes)

    def claimed(
        self, pod: pods.Pod, demand: demands.PodDemand, among: Collection[str]
    ) -> grants.Grant | claim_grants.Waits:
        """What a pod has by its claims."""
        if self._claims is None:
            return claim_grants.Waits(
                "this cluster has no definitions of Elastic GPU; apply deploy/claims.yaml"
            )
        return self._claims.grant(pod, demand, among)

    def _by_claim(
        self, pod: pods.Pod, demand: demands.PodDemand, among: Collection[str]
    ) -> Verdict:
        """Where the shares of its claims are, and nowhere else; with a hold on them."""
        before = self._binds.lift(pod.metadata.uid)
        grant = self.claimed(pod, demand, among)
        if not isinstance(grant, claim_grants.Waits) and grant.node in among:
            self._binds.reserve(pod, grant)
            return Verdict([grant.node])
        if before:
            self._mirror.freed(before)  # another pod may have the claim
        if isinstance(grant, claim_grants.Waits):
            return Verdict(waits_for=grant.text)
        return Verdict(waits_for=f"its claims are on node {grant.node}, which is not asked for")

    def rank(self, pod: pods.Pod, among: Container[str]) -> list[str]:
        """The nodes on which a pod fits, best first; what it holds itself counts as free."""
        try:
            demand = self._mirror.demand(pod)
        except errors.DemandError:
            return []
        if demand is None:
            return []
        if demand.by_claim:
            mine = self._fleet.grant_of(pod.metadata.uid)
            return [mine.node] if mine is not None and mine.node in among else []
        held = self._fleet.grant_of(pod.metadata.uid)
        nodes = self._fleet.best(demand, limit=0, among=among)
        if held is None or held.node not in among:
            return nodes
        return [held.node, *(node for node in nodes if node != held.node)]
