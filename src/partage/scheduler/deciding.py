"""Deciding: which nodes a pod may go to, with a hold on the best of them.

kube-scheduler binds in the background: the filter of the next pod comes before the bind of this
one. So each filter that finds room reserves it, in place of whatever the same pod had reserved
before; bind moves the hold to the node it is told, and what is never bound expires.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container

import msgspec

from partage.core import demands, errors, grants, refusals
from partage.dialects import pods, registry
from partage.scheduler import mirror as mirrors

# An API server gives up on a request after a minute; what was sent before that may yet happen.
_DOUBT_S = 90.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a pod that was filtered."""

    demand: demands.PodDemand | None = None  # None: it asks for no card
    nodes: list[str] = []  # best first
    wrong: str = ""  # why no node will ever do: the request itself is not allowed


class Decider:
    """The decisions, and whether anybody was refused since that was last asked."""

    def __init__(
        self, mirror: mirrors.Mirror, *, clock: Callable[[], float], hold_s: float
    ) -> None:
        self.mirror = mirror
        self.refused = False
        self._clock = clock
        self._hold_s = hold_s
        self._asking: dict[str, pods.Pod] = {}  # uid -> the pod of a hold, until it is bound
        self._binding: dict[str, grants.Grant] = {}  # uid -> what is, or may be, being bound
        self._doubts: dict[str, float] = {}  # uid -> since when nobody knows

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
        return Verdict(demand=demand, nodes=self.choose(pod, demand, among, limit))

    def choose(
        self, pod: pods.Pod, demand: demands.PodDemand, among: Container[str], limit: int
    ) -> list[str]:
        """The best nodes for what a pod asks for, with a hold on the first."""
        world, uid = self.mirror.fleet, pod.metadata.uid
        settled = self._binding.get(uid)
        if settled is None and world.hold_of(uid) is None:
            settled = world.grant_of(uid)
        if settled is not None:
            self.refused = self.refused or settled.node not in among
            return [settled.node] if settled.node in among else []
        before = world.release(uid)  # its own hold must not stand in its way
        nodes = world.best(demand, limit=limit, among=among)
        if nodes:
            self.hold(pod, demand, nodes[0])
        else:
            self._forget(uid)
            self.refused = True
        if before is not None and before.node not in nodes[:1]:
            self.mirror.freed(before.node)
        return nodes

    def asked(self, pod: pods.Pod, cards_by: str = "") -> demands.PodDemand | None:
        """What a pod asks for; ``cards_by`` chooses its cards where nobody else says how."""
        demand = self.mirror.demand(pod)
        if demand is None or demand.cards_by or not cards_by:
            return demand
        return msgspec.structs.replace(demand, cards_by=cards_by)

    def rank(self, pod: pods.Pod, among: Container[str]) -> list[str]:
        """The nodes on which a pod fits, best first; what it holds itself counts as free."""
        world = self.mirror.fleet
        try:
            demand = self.mirror.demand(pod)
        except errors.DemandError:
            return []
        if demand is None:
            return []
        held = world.grant_of(pod.metadata.uid)
        nodes = world.best(demand, limit=0, among=among)
        if held is None or held.node not in among:
            return nodes
        return [held.node, *(node for node in nodes if node != held.node)]

    def asking(self, uid: str) -> pods.Pod | None:
        """The pod of a hold, as kube-scheduler sent it."""
        return self._asking.get(uid)

    def hold(
        self, pod: pods.Pod, demand: demands.PodDemand, node: str
    ) -> grants.Grant | refusals.Refusal:
        """Reserve what a pod needs on a node, in place of what it had reserved."""
        world, uid = self.mirror.fleet, pod.metadata.uid
        before = world.hold_of(uid)
        held = world.hold(pod.identity, demand, node, expires_at=self._clock() + self._hold_s)
        if isinstance(held, refusals.Refusal):
            self.release(uid)
            return held
        self._asking[uid] = registry.trimmed(pod)
        if before is not None and before.grant.node != node:
            self.mirror.freed(before.grant.node)
        return held.grant

    def release(self, uid: str) -> None:
        """Give back what a pod had reserved."""
        self._forget(uid)
        self.mirror.release(uid)

    def recall(self, uid: str) -> None:
        """What was decided does not count any more: the pod itself says what it has."""
        self._forget(uid)
        if self.mirror.fleet.hold_of(uid) is not None:
            self.mirror.fleet.release(uid)

    @property
    def in_doubt(self) -> bool:
        """Whether the outcome of any bind is unknown."""
        return bool(self._doubts)

    def doubted(self, uid: str) -> grants.Grant | None:
        """What the pod may have been bound with already, if nobody knows."""
        return self._binding.get(uid) if self.mirror.fleet.hold_of(uid) is not None else None

    def begin(self, grant: grants.Grant) -> None:
        """A grant is being bound; whoever asks about its pod meanwhile hears of no other node."""
        self._binding[grant.pod.uid] = grant

    def confirm(self, uid: str) -> None:
        """The pod is bound. It may be gone again by now, and then it has nothing."""
        self._forget(uid)
        if self.mirror.fleet.grant_of(uid) is not None:
            self.mirror.fleet.confirm(uid)

    def doubt(self, uid: str) -> None:
        """Whether the pod was bound is unknown: what it may have stays reserved until it is."""
        self.mirror.fleet.extend(uid, math.inf)
        self._doubts[uid] = self._clock()

    def doubts(self) -> list[grants.Pod]:
        """The pods whose outcome can be looked up by now: nothing that was sent can yet happen."""
        old = [uid for uid, since in self._doubts.items() if self._clock() - since > _DOUBT_S]
        return [self._binding[uid].pod for uid in old if uid in self._binding]

    def expire(self) -> None:
        """End the holds whose time has come, and forget those that ended by themselves."""
        world = self.mirror.fleet
        for grant in world.expire(self._clock()):
            self.mirror.freed(grant.node)
        for uid in [uid for uid in self._asking if world.hold_of(uid) is None]:
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        self._asking.pop(uid, None)
        self._binding.pop(uid, None)
        self._doubts.pop(uid, None)
