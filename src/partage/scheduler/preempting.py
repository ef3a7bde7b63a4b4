"""Preempting: whether evicting the proposed victims really makes room, and which are needed.

kube-scheduler proposes victims by the sums of a node; what the pod needs is room on a card. A node
stays in only if the pod fits there without its victims. A victim without which nothing is gained
is spared, most important first (that is kube-scheduler's order); one whose CPU or main memory the
pod needs is not.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from partage.core import demands, errors, fitting, grants, plans
from partage.core.rooms import NodeState
from partage.dialects import loads
from partage.scheduler import deciding, wire

_ARGS = msgspec.json.Decoder(wire.PreemptionArgs)


class Preemption:
    """Answers preempt."""

    def __init__(self, decider: deciding.Decider) -> None:
        self._decider = decider

    def preempt(self, body: bytes) -> bytes:
        """The nodes on which the victims make room, with the victims that are needed."""
        try:
            args = wire.decode(_ARGS, body, "node_name_to_meta_victims", "node_name_to_victims")
            kept = self._kept(args)
        except (wire.WireError, errors.DemandError):
            kept = {}
        return wire.encode(wire.PreemptionResult(kept))

    def _kept(self, args: wire.PreemptionArgs) -> dict[str, wire.MetaVictims]:
        proposed = _proposed(args)
        demand = None if args.pod is None else self._decider.asked(args.pod)
        if args.pod is None or demand is None:
            return proposed  # no business of ours
        uid = args.pod.metadata.uid
        needed = {name: self._needed(demand, uid, name, v) for name, v in proposed.items()}
        return {
            name: msgspec.structs.replace(proposed[name], pods=pods)
            for name, pods in needed.items()
            if pods
        }

    def _needed(
        self, demand: demands.PodDemand, uid: str, node: str, victims: wire.MetaVictims
    ) -> tuple[wire.MetaPod, ...]:
        """The victims without which the pod does not fit; none if it does not fit anyway."""
        state = self._decider.mirror.fleet.state(node)
        if state is None:
            return ()
        gone = {victim.uid for victim in victims.pods} | {uid}
        if not self._fits(state, demand, gone, victims):
            return ()
        for victim in victims.pods:
            if self._fits(state, demand, gone - {victim.uid}, victims):
                gone.remove(victim.uid)
        return tuple(victim for victim in victims.pods if victim.uid in gone)

    def _fits(
        self,
        state: NodeState,
        demand: demands.PodDemand,
        gone: set[str],
        victims: wire.MetaVictims,
    ) -> bool:
        without = _without(state, gone)
        policy = self._decider.mirror.fleet.card_policy(without, demand)
        if fitting.place(without, plans.Plan(demand), policy) is None:
            return False
        freed = self._loads(victim.uid for victim in victims.pods if victim.uid in gone)
        spare = (
            (state.node.free_cpu_milli, freed.cpu_milli, demand.cpu_milli),
            (state.node.free_main_mib, freed.main_mib, demand.main_mib),
        )
        # A node that is short of CPU whoever goes is not ours to judge.
        everyone = self._loads(victim.uid for victim in victims.pods)
        most = (everyone.cpu_milli, everyone.main_mib)
        return all(
            free is None or free + back >= need or free + all_back < need
            for (free, back, need), all_back in zip(spare, most, strict=True)
        )

    def _loads(self, uids: Iterable[str]) -> loads.Load:
        return sum((self._decider.mirror.pods.load(uid) for uid in uids), loads.Load())


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
