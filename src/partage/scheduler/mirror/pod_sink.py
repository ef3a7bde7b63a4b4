"""The sink for pods: what each has, what it reserves, and whether it waits.

Of a pod nothing is kept but its grant, its load and whether it waits; except for the few that
cannot be settled yet, because their node is unknown or their record is damaged. Those are read
again when their node changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from partage.core import cards, demand_mix, demands, fleet, grants
from partage.dialects import bound_pods, grant_record, loads, pods, registry
from partage.dialects.claims import objects
from partage.scheduler.mirror import pod_requests, problems

log = logging.getLogger(__name__)

_NOTHING = loads.Load()
_MOST_GONE = 4096


class Witness(Protocol):
    """Wants to know what the API server reports of pods."""

    def seen(self, pod: pods.Pod, /) -> None:
        """A pod exists, in this version."""

    def gone(self, uid: str, /) -> None:
        """A pod has ended, or was deleted."""


class _Nobody:
    """A witness for whom nothing is of interest."""

    def seen(self, _pod: pods.Pod) -> None:
        pass

    def gone(self, _uid: str) -> None:
        pass


class Entry(msgspec.Struct, gc=False):
    """What is kept of a pod: small, and nothing for the garbage collector to walk through."""

    node: str
    cpu_milli: int
    main_mib: int


class PodSink:
    """What is known of pods."""

    def __init__(
        self,
        fleet: fleet.Fleet,
        problems: problems.Problems,
        requests: pod_requests.PodRequests,
        mix: demand_mix.Mix,
        *,
        load_changed: Callable[[str], None],
        freed: Callable[[str], None],
    ) -> None:
        self.waiting: dict[str, grants.Pod] = {}  # by uid: pods that ask for cards, not bound
        self.witness: Witness = _Nobody()
        self.is_only_extender = False  # whether no other process makes grants
        self._fleet = fleet
        self._problems = problems
        self._requests = requests
        self._mix = mix
        self._load_changed = load_changed  # called with the name of a node
        self._freed = freed  # called with the name of a node that has more room than before
        self._entries: dict[str, Entry] = {}  # by uid
        self._used: dict[str, loads.Load] = {}  # by node
        self._gone: dict[str, None] = {}  # uids, the latest last
        self._unsettled: dict[str, dict[str, pods.Pod]] = {}  # node -> uid -> pod

    def put(self, pod: pods.Pod) -> None:
        try:
            self._put(pod)
        except Exception:  # a mistake of ours; one odd object must not stop all decisions
            log.exception("%s could not be read", _label(pod))
            self._be_safe(pod)
            self.witness.seen(pod)

    def _put(self, pod: pods.Pod) -> None:
        uid = pod.metadata.uid
        if pods.ended(pod):
            self.drop(uid)
        elif pod.spec.node_name:
            self._bound(pod)
        elif uid not in self._entries or not self._entries[uid].node:
            self._pending(pod)
        self.witness.seen(pod)

    def drop(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        self._gone[uid] = None
        if len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]
        self.waiting.pop(uid, None)
        if entry is not None and entry.node:
            self._count(entry, -1)
            self._forget_unsettled(entry.node, uid)
        grant = self._fleet.grant_of(uid)
        if grant is not None:
            self._problems.set(f"pod {grant.pod.namespace}/{grant.pod.name}", "")
        self._release(uid)
        self.witness.gone(uid)

    def keys(self) -> Collection[str]:
        """All pods that have or await something, with those bound here and not seen since."""
        granted = {uid for uid in self._fleet.uids() if not objects.owned_name(uid)}
        return self._entries.keys() | granted

    def used(self, node: str) -> loads.Load:
        """The load of all pods on a node."""
        return self._used.get(node, _NOTHING)

    def load(self, uid: str) -> loads.Load:
        """What a pod takes of its node besides cards."""
        entry = self._entries.get(uid)
        return _NOTHING if entry is None else loads.Load(entry.cpu_milli, entry.main_mib)

    def settle(self, node: str) -> None:
        """Read the unsettled pods of a node again."""
        for pod in list(self._unsettled.get(node, {}).values()):
            self._read(pod, self._demand(pod))

    def is_gone(self, uid: str) -> bool:
        """Whether a pod has ended or was deleted a short while ago; uids are not used twice."""
        return uid in self._gone

    def is_guessed(self, uid: str, node: str) -> bool:
        """Whether a pod is counted in the worst case, because its record cannot be read."""
        return uid in self._unsettled.get(node, {})

    def _pending(self, pod: pods.Pod) -> None:
        demand = self._demand(pod)
        if isinstance(demand, demands.PodDemand):  # filter says what is not allowed
            if pod.metadata.uid not in self._entries:
                self._meet(pod, demand)
            self.waiting[pod.metadata.uid] = pod.identity

    def _bound(self, pod: pods.Pod) -> None:
        uid = pod.metadata.uid
        demand = self._demand(pod)
        if uid not in self._entries:
            self._meet(pod, demand)
        if not self._entries[uid].node:
            self._entries[uid].node = pod.spec.node_name
            self._count(self._entries[uid], 1)
        self.waiting.pop(uid, None)
        self._read(pod, demand)

    def _demand(self, pod: pods.Pod) -> demands.PodDemand | grants.Damage | None:
        request = self._requests.read(pod)
        if request.wrong is None:
            return request.demand
        return bound_pods.damage(request.wrong) if bound_pods.asks(pod) else None

    def _meet(self, pod: pods.Pod, demand: demands.PodDemand | grants.Damage | None) -> None:
        """Count a pod that is new; others may ask for the same as it does."""
        load = self._requests.read(pod).load
        self._entries[pod.metadata.uid] = Entry("", load.cpu_milli, load.main_mib)
        if isinstance(demand, demands.PodDemand):
            self._mix.add(demand)

    def _read(self, pod: pods.Pod, demand: demands.PodDemand | grants.Damage | None) -> None:
        """Count what a bound pod has."""
        fleet, name, uid = self._fleet, pod.spec.node_name, pod.metadata.uid
        state = fleet.state(name)
        if state is None:
            self._unsettled.setdefault(name, {})[uid] = registry.trimmed(pod)
            return
        granted: grants.Grant | grants.Damage | None = None
        if isinstance(demand, grants.Damage):
            granted = demand
        elif demand is not None:
            granted = bound_pods.recorded(pod, demand, state.node, self._requests.settings)
        settled = None if fleet.hold_of(uid) else fleet.grant_of(uid)
        if settled is not None and not self.is_guessed(uid, name):
            self._keep(pod, settled, granted)
        elif isinstance(granted, grants.Damage):
            self._damaged(pod, state.node, granted)
        else:
            self._forget_unsettled(name, uid)
            self._take(pod, granted)

    def _keep(
        self, pod: pods.Pod, settled: grants.Grant, read: grants.Grant | grants.Damage | None
    ) -> None:
        """Keep what a pod was granted, as long as it lives, whatever its record says later."""
        changed = read != settled
        text = "its record was changed; what it was granted still counts" if changed else ""
        self._problems.set(_label(pod), text)

    def _take(self, pod: pods.Pod, granted: grants.Grant | None) -> None:
        if granted is None:
            self._release(pod.metadata.uid)
            return
        self._suspect(pod)
        self._fleet.admit(granted)

    def _suspect(self, pod: pods.Pod) -> None:
        """Report a grant of Partage that this process did not make: another extender runs."""
        ours = self._fleet.grant_of(pod.metadata.uid) is not None
        if self.is_only_extender and not ours and grant_record.GRANT in pod.metadata.annotations:
            self._problems.set(
                "another extender",
                f"it bound {_label(pod)}, so a card may be granted twice; "
                "start all replicas with --leader-elect",
            )

    def _damaged(self, pod: pods.Pod, node: cards.Node, damage: grants.Damage) -> None:
        self._unsettled.setdefault(node.name, {})[pod.metadata.uid] = registry.trimmed(pod)
        worst = bound_pods.worst(pod, node, self._requests.settings)
        self._problems.set(_label(pod), f"{damage}; it is counted on every card it may have")
        if self._fleet.grant_of(pod.metadata.uid) != worst:
            self._fleet.admit(worst)

    def _release(self, uid: str) -> None:
        grant = self._fleet.release(uid)
        if grant is not None:
            self._freed(grant.node)

    def _be_safe(self, pod: pods.Pod) -> None:
        """Count all cards of its node: nothing is known of what the pod has."""
        state = self._fleet.state(pod.spec.node_name)
        self._problems.set(
            _label(pod), "it could not be read; all cards of its node count as taken by it"
        )
        if state is not None:
            self._fleet.admit(bound_pods.everything(pod, state.node))

    def _forget_unsettled(self, node: str, uid: str) -> None:
        unsettled = self._unsettled.get(node)
        pod = unsettled.pop(uid, None) if unsettled else None
        if pod is not None:
            self._problems.set(_label(pod), "")
        if unsettled is not None and not unsettled:
            del self._unsettled[node]

    def _count(self, entry: Entry, sign: int) -> None:
        load = loads.Load(sign * entry.cpu_milli, sign * entry.main_mib)
        self._used[entry.node] = self.used(entry.node) + load
        self._load_changed(entry.node)


def _label(pod: pods.Pod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"
