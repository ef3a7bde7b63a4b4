"""Deciding: which nodes a pod may go to, with a hold on the best of them.

kube-scheduler binds in the background: the filter of the next pod comes before the bind of this
one. So each filter that finds room reserves it, in place of whatever the same pod had reserved
before; bind moves the hold to the node it is told, and what is never bound expires.
"""

from __future__ import annotations

from collections.abc import Callable, Container

import msgspec

from partage.core import demands, errors
from partage.dialects import pods
from partage.scheduler import binds
from partage.scheduler import mirror as mirrors

MOST_REFUSED = 64  # demands that are remembered; tenants write them


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a pod that was filtered."""

    demand: demands.PodDemand | None = None  # None: it asks for no card
    nodes: list[str] = []  # best first
    placed: str = ""  # the only node that will do: the pod is bound there, or may be
    wrong: str = ""  # why no node will ever do: the request itself is not allowed


class Decider:
    """The decisions, and who was refused since that was last asked."""

    def __init__(
        self, mirror: mirrors.Mirror, *, clock: Callable[[], float], hold_s: float
    ) -> None:
        self.mirror = mirror
        self.binds = binds.Binds(mirror, clock=clock, hold_s=hold_s)
        self.refused: dict[demands.PodDemand, None] = {}  # what did not fit

    def decide(
        self, pod: pods.Pod, among: Container[str], *, limit: int, cards_by: str = ""
    ) -> Verdict:
        """The best nodes for a pod among those named."""
        try:
            demand = self.asked(pod, cards_by)
        except errors.DemandError as error:
            return Verdict(wrong=str(error))
        if demand is None:
            return Verdict()
        return self.choose(pod, demand, among, limit)

    def choose(
        self, pod: pods.Pod, demand: demands.PodDemand, among: Container[str], limit: int
    ) -> Verdict:
        """The best nodes for what a pod asks for, with a hold on the first."""
        placed = self._placed(pod)
        if placed:
            nodes = [placed] if placed in among else []
            if not nodes:
                self._remember(demand)
            return Verdict(demand=demand, nodes=nodes, placed=placed)
        before = self.binds.lift(pod.metadata.uid)  # its own hold must not stand in its way
        nodes = self.mirror.fleet.best(demand, limit=limit, among=among)
        if nodes:
            self.binds.hold(pod, demand, nodes[0])
        else:
            self._remember(demand)
        if before and before not in nodes[:1]:
            self.mirror.freed(before)
        return Verdict(demand=demand, nodes=nodes)

    def asked(self, pod: pods.Pod, cards_by: str = "") -> demands.PodDemand | None:
        """What a pod asks for; ``cards_by`` chooses its cards where nobody else says how."""
        demand = self.mirror.demand(pod)
        if demand is None or demand.cards_by or not cards_by:
            return demand
        return msgspec.structs.replace(demand, cards_by=cards_by)

    def rank(self, pod: pods.Pod, among: Container[str]) -> list[str]:
        """The nodes on which a pod fits, best first; what it holds itself counts as free."""
        fleet = self.mirror.fleet
        try:
            demand = self.mirror.demand(pod)
        except errors.DemandError:
            return []
        if demand is None:
            return []
        held = fleet.grant_of(pod.metadata.uid)
        nodes = fleet.best(demand, limit=0, among=among)
        if held is None or held.node not in among:
            return nodes
        return [held.node, *(node for node in nodes if node != held.node)]

    def may_fit(self, demand: demands.PodDemand) -> bool:
        """Whether a demand that was refused fits somewhere by now, as far as is known at once."""
        fleet = self.mirror.fleet
        return fleet.prepare(demand) is not None or bool(fleet.best(demand))

    def _remember(self, demand: demands.PodDemand) -> None:
        if len(self.refused) < MOST_REFUSED:
            self.refused[demand] = None

    def _placed(self, pod: pods.Pod) -> str:
        """The node that a pod is bound to, or may be; empty if it can still go anywhere."""
        fleet, uid = self.mirror.fleet, pod.metadata.uid
        if not pod.spec.node_name:  # kube-scheduler asks about no other
            self.binds.seen(pod)
        life = self.binds.of(uid)
        if isinstance(life, binds.Sent | binds.InDoubt):
            return life.grant.node
        settled = None if fleet.hold_of(uid) else fleet.grant_of(uid)
        return "" if settled is None else settled.node
