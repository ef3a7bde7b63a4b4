"""Preemptions: whether evicting the proposed victims really makes room, and which are needed.

kube-scheduler proposes victims by the sums of a node; what the pod needs is room on a card, and in
the total of its namespace. A node stays in only if the pod fits there without its victims. Of those
a victim is spared if the pod fits beside it, most important first (that is kube-scheduler's order),
but only where nothing else can have been the reason to propose it: it holds a grant, the pod asks
for nothing but cards, CPU and main memory, and of the latter two there is enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from partage.core import demands, errors, grants
from partage.core.placement import fitting, plans
from partage.core.placement.rooms import NodeState
from partage.dialects import loads, pods, registry
from partage.scheduler import wire
from partage.scheduler.mirror import mirror as mirrors

_ARGS = msgspec.json.Decoder(wire.PreemptionArgs)


class Preemption:
    """Answers preempt."""

    def __init__(self, mirror: mirrors.Mirror) -> None:
        self._mirror = mirror

    def preempt(self, body: bytes) -> bytes:
        """The nodes on which the victims make room, with the victims that are needed."""
        try:
            args = wire.decode(_ARGS, body, "node_name_to_meta_victims", "node_name_to_victims")
            kept = self._kept(args, body)
        except (wire.WireError, errors.DemandError):
            kept = {}
        return wire.encode(wire.PreemptionResult(kept))

    def _kept(self, args: wire.PreemptionArgs, body: bytes) -> dict[str, wire.MetaVictims]:
        proposed = _proposed(args)
        demand = None if args.pod is None else self._mirror.demand(args.pod)
        if args.pod is None or demand is None:
            return proposed  # not ours to decide
        if demand.by_claim:
            return {}  # its claims have what they have, whoever is evicted
        preemptor = _Preemptor(args.pod.identity, demand, _is_plain(args.pod, body))
        needed = {name: self._needed(preemptor, name, v) for name, v in proposed.items()}
        return {
            name: msgspec.structs.replace(proposed[name], pods=pods)
            for name, pods in needed.items()
            if pods
        }

    def _needed(
        self, preemptor: _Preemptor, node: str, victims: wire.MetaVictims
    ) -> tuple[wire.MetaPod, ...]:
        """The victims to evict; none if the pod does not fit without them."""
        state = self._mirror.fleet.state(node)
        if state is None:
            return ()
        gone = {victim.uid for victim in victims.pods} | {preemptor.pod.uid}
        if not self._fits(state, preemptor, gone, victims):
            return ()
        for victim in victims.pods if preemptor.plain else ():
            spared = gone - {victim.uid}
            granted = victim.uid in state.grants
            if granted and self._fits(state, preemptor, spared, victims):
                gone = spared
        kept = tuple(victim for victim in victims.pods if victim.uid in gone)
        return kept or victims.pods  # it was proposed for a reason that is not known here

    def _fits(
        self,
        state: NodeState,
        preemptor: _Preemptor,
        gone: set[str],
        victims: wire.MetaVictims,
    ) -> bool:
        without, demand = _without(state, gone), preemptor.demand
        policy = self._mirror.fleet.card_policy(without, demand)
        chosen = fitting.place(without, plans.Plan(demand), policy)
        if chosen is None:
            return False
        granted = fitting.grant(without, demand, chosen, pod=preemptor.pod, policy=policy.name)
        if self._mirror.fleet.excess(granted, without=gone) is not None:
            return False
        freed = self._loads(victim.uid for victim in victims.pods if victim.uid in gone)
        spare = (
            (state.node.free_cpu_milli, freed.cpu_milli, demand.cpu_milli),
            (state.node.free_main_mib, freed.main_mib, demand.main_mib),
        )
        # A node that is short of CPU even without all victims is not ours to judge.
        everyone = self._loads(victim.uid for victim in victims.pods)
        most = (everyone.cpu_milli, everyone.main_mib)
        return all(
            free is None or free + back >= need or free + all_back < need
            for (free, back, need), all_back in zip(spare, most, strict=True)
        )

    def _loads(self, uids: Iterable[str]) -> loads.Load:
        return sum((self._mirror.pods.load(uid) for uid in uids), loads.Load())


class _Preemptor(msgspec.Struct, frozen=True):
    """The pod that needs room; ``plain`` if cards, CPU and memory are all that it needs."""

    pod: grants.Pod
    demand: demands.PodDemand
    plain: bool


def _is_plain(pod: pods.Pod, body: bytes) -> bool:
    """Whether only cards, CPU and memory can keep the pod from a node."""
    spec = wire.decode(_REQUIREMENTS, body, "pod").pod.spec
    ports = any(port.host_port for container in spec.containers for port in container.ports)
    volumes = any(volume.persistent_volume_claim for volume in spec.volumes)
    placed = spec.affinity or spec.topology_spread_constraints or spec.resource_claims
    others = pods.resources(pod) - {"cpu", "memory", "ephemeral-storage"}
    return not (ports or volumes or placed) and registry.knows(others)


class _Port(msgspec.Struct, frozen=True, rename="camel"):
    host_port: int = 0


class _Container(msgspec.Struct, frozen=True):
    ports: tuple[_Port, ...] = ()


class _Volume(msgspec.Struct, frozen=True, rename="camel"):
    persistent_volume_claim: dict[str, Any] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    """What else than cards can keep a pod from a node; the dialects need not know it."""

    containers: tuple[_Container, ...] = ()
    volumes: tuple[_Volume, ...] = ()
    affinity: dict[str, Any] | None = None
    topology_spread_constraints: tuple[dict[str, Any], ...] = ()
    resource_claims: tuple[dict[str, Any], ...] = ()


class _Pod(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


class _Requirements(msgspec.Struct, frozen=True, rename="pascal"):
    pod: _Pod = _Pod()


_REQUIREMENTS = msgspec.json.Decoder(_Requirements)


def _proposed(args: wire.PreemptionArgs) -> dict[str, wire.MetaVictims]:
    if args.node_name_to_meta_victims is not None:
        return args.node_name_to_meta_victims
    return {
        name: wire.MetaVictims(
            tuple(wire.MetaPod(pod.metadata.uid) for pod in victims.pods), victims.violations
        )
        for name, victims in (args.node_name_to_victims or {}).items()
    }


def _without(state: NodeState, gone: set[str]) -> NodeState:
    """The node as it would be without some pods."""
    copy = NodeState(state.node)
    for grant in _others(state, gone):
        copy.add(grant)
    return copy


def _others(state: NodeState, gone: set[str]) -> list[grants.Grant]:
    return [grant for uid, grant in state.grants.items() if uid not in gone]
