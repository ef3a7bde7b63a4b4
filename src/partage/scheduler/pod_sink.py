"""The sink for pods: what each has, what it reserves, and whether it waits.

Of a pod nothing is kept but its grant, its load and whether it waits; except for the few that
cannot be settled yet, because their node is unknown or their record is damaged. Those are read
again when their node changes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from partage.core import cards, demands, grants
from partage.dialects import loads, native, pods, registry

if TYPE_CHECKING:
    from partage.scheduler.mirror import Mirror

log = logging.getLogger(__name__)

_NOTHING = loads.Load()
_MOST_GONE = 4096


class Known(msgspec.Struct, gc=False):
    """What is kept of a pod: small, and nothing for the garbage collector to walk through."""

    node: str
    cpu_milli: int
    main_mib: int


class PodSink:
    """What is known of pods."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._known: dict[str, Known] = {}
        self._used: dict[str, loads.Load] = {}  # by node
        self._gone: dict[str, None] = {}  # uids, the latest last
        self._unsettled: dict[str, dict[str, pods.Pod]] = {}  # node -> uid -> pod

    def put(self, pod: pods.Pod) -> None:
        try:
            self._put(pod)
        except Exception:  # a mistake of ours; one odd object must not stop all decisions
            log.exception("%s could not be read", _called(pod))
            self._be_safe(pod)
            self._mirror.witness.seen(pod)

    def _put(self, pod: pods.Pod) -> None:
        uid = pod.metadata.uid
        if pods.ended(pod):
            self.drop(uid)
        elif pod.spec.node_name:
            self._bound(pod)
        elif uid not in self._known or not self._known[uid].node:
            self._pending(pod)
        self._mirror.witness.seen(pod)

    def drop(self, uid: str) -> None:
        known = self._known.pop(uid, None)
        self._gone[uid] = None
        if len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]
        self._mirror.waiting.pop(uid, None)
        if known is not None and known.node:
            self._count(known, -1)
            self._forget_unsettled(known.node, uid)
        grant = self._mirror.fleet.grant_of(uid)
        if grant is not None:
            self._mirror.problems.set(f"pod {grant.pod.namespace}/{grant.pod.name}", "")
        self._mirror.release(uid)
        self._mirror.witness.gone(uid)

    def keys(self) -> Collection[str]:
        """All pods that take or await something; those we bound and have not seen since, too."""
        return self._known.keys() | self._mirror.fleet.uids()

    def used(self, node: str) -> loads.Load:
        """The load of all pods on a node."""
        return self._used.get(node, _NOTHING)

    def load(self, uid: str) -> loads.Load:
        """What a pod takes of its node besides cards."""
        known = self._known.get(uid)
        return _NOTHING if known is None else loads.Load(known.cpu_milli, known.main_mib)

    def settle(self, node: str) -> None:
        """Read the unsettled pods of a node again."""
        for pod in list(self._unsettled.get(node, {}).values()):
            self._read(pod, self._asked(pod))

    def is_gone(self, uid: str) -> bool:
        """Whether a pod has ended or was deleted a short while ago; uids are not used twice."""
        return uid in self._gone

    def is_guessed(self, uid: str, node: str) -> bool:
        """Whether what a pod has is counted in the worst case, for want of a readable record."""
        return uid in self._unsettled.get(node, {})

    def _pending(self, pod: pods.Pod) -> None:
        asked = self._asked(pod)
        if isinstance(asked, demands.PodDemand):  # what is not allowed is told when it is filtered
            if pod.metadata.uid not in self._known:
                self._meet(pod, asked)
            self._mirror.waiting[pod.metadata.uid] = pod.identity

    def _bound(self, pod: pods.Pod) -> None:
        uid = pod.metadata.uid
        asked = self._asked(pod)
        if uid not in self._known:
            self._meet(pod, asked)
        if not self._known[uid].node:
            self._known[uid].node = pod.spec.node_name
            self._count(self._known[uid], 1)
        self._mirror.waiting.pop(uid, None)
        self._read(pod, asked)

    def _asked(self, pod: pods.Pod) -> demands.PodDemand | grants.Damage | None:
        asked = self._mirror.asked(pod)
        if asked.wrong is None:
            return asked.demand
        return registry.damage(asked.wrong) if registry.asks(pod) else None

    def _meet(self, pod: pods.Pod, asked: demands.PodDemand | grants.Damage | None) -> None:
        """A pod that was not known before; whatever it asks for, others may ask for too."""
        load = self._mirror.asked(pod).load
        self._known[pod.metadata.uid] = Known("", load.cpu_milli, load.main_mib)
        if isinstance(asked, demands.PodDemand):
            self._mirror.mix.add(asked)

    def _read(self, pod: pods.Pod, asked: demands.PodDemand | grants.Damage | None) -> None:
        """Count what a bound pod has."""
        world, name, uid = self._mirror.fleet, pod.spec.node_name, pod.metadata.uid
        state = world.state(name)
        if state is None:
            self._unsettled.setdefault(name, {})[uid] = registry.trimmed(pod)
            return
        granted: grants.Grant | grants.Damage | None = None
        if isinstance(asked, grants.Damage):
            granted = asked
        elif asked is not None:
            granted = registry.recorded(pod, asked, state.node, self._mirror.settings)
        settled = None if world.hold_of(uid) else world.grant_of(uid)
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
        """What a pod was granted is what it has, as long as it lives, whatever it says later."""
        changed = read != settled
        text = "its record was changed; what it was granted still counts" if changed else ""
        self._mirror.problems.set(_called(pod), text)

    def _take(self, pod: pods.Pod, granted: grants.Grant | None) -> None:
        if granted is None:
            self._mirror.release(pod.metadata.uid)
            return
        self._suspect(pod)
        self._mirror.fleet.admit(granted)

    def _suspect(self, pod: pods.Pod) -> None:
        """A grant of Partage that is news to us was made by another one, beside us."""
        ours = self._mirror.fleet.grant_of(pod.metadata.uid) is not None
        if self._mirror.alone and not ours and native.GRANT in pod.metadata.annotations:
            self._mirror.problems.set(
                "another extender",
                f"it bound {_called(pod)}, and cards may be given away twice; "
                "start all replicas with --leader-elect",
            )

    def _damaged(self, pod: pods.Pod, node: cards.Node, damage: grants.Damage) -> None:
        self._unsettled.setdefault(node.name, {})[pod.metadata.uid] = registry.trimmed(pod)
        worst = registry.worst(pod, node, self._mirror.settings)
        self._mirror.problems.set(
            _called(pod), f"{damage}; it is counted on every card it may have"
        )
        if self._mirror.fleet.grant_of(pod.metadata.uid) != worst:
            self._mirror.fleet.admit(worst)

    def _be_safe(self, pod: pods.Pod) -> None:
        """Nothing is known of what the pod has, so it has everything."""
        state = self._mirror.fleet.state(pod.spec.node_name)
        self._mirror.problems.set(_called(pod), "it could not be read, and counts as all cards")
        if state is not None:
            self._mirror.fleet.admit(registry.everything(pod, state.node))

    def _forget_unsettled(self, node: str, uid: str) -> None:
        there = self._unsettled.get(node)
        pod = there.pop(uid, None) if there else None
        if pod is not None:
            self._mirror.problems.set(_called(pod), "")
        if there is not None and not there:
            del self._unsettled[node]

    def _count(self, known: Known, sign: int) -> None:
        load = loads.Load(sign * known.cpu_milli, sign * known.main_mib)
        self._used[known.node] = self.used(known.node) + load
        self._mirror.set_node(known.node, better=False)


def _called(pod: pods.Pod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"
