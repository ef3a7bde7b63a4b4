"""Mirror: the fleet, kept in step with what the API server tells of nodes, pods and sick cards.

State is rebuilt from these three alone; there is no other store. Each kind of object has a sink
that a reflector fills: :mod:`.node_sink`, :mod:`.pod_sink`, :mod:`.sick_sink`.

What we bound ourselves is known before the watch says so. An older word about such a pod must not
undo it, so a pod that was bound stays bound until it is gone: Kubernetes never unbinds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from partage.core import demands, fleet, grants, mixes
from partage.dialects import base, nodes, pods, templates
from partage.scheduler import node_sink, pod_sink, problems, sick_sink, units


class Witness(Protocol):
    """Who wants to know what pods say of themselves."""

    def seen(self, pod: pods.Pod, /) -> None:
        """A pod is there, as it says."""

    def gone(self, uid: str, /) -> None:
        """A pod has ended, or was deleted."""


class Mirror:
    """What is known of the cluster."""

    def __init__(
        self,
        world: fleet.Fleet,
        unit: units.Unit,
        *,
        freed: Callable[[str], None] = lambda _node: None,
    ) -> None:
        self.fleet = world
        self.mix = mixes.Mix()
        self.problems = problems.Problems()
        self.alone = False  # whether nobody else makes grants
        self.waiting: dict[str, grants.Pod] = {}  # by uid: pods that ask for cards, not bound
        self.witness: Witness = _Nobody()
        self.nodes = node_sink.NodeSink(self)
        self.pods = pod_sink.PodSink(self)
        self.sick = sick_sink.SickSink(self)
        self._unit = unit
        self._templates = templates.Templates()
        self.freed = freed  # told which node has more room than before

    @property
    def settings(self) -> base.Settings:
        """The dialects' settings, with the unit of memory that the cluster counts in."""
        return self._unit.settings

    def demand(self, pod: pods.Pod) -> demands.PodDemand | None:
        """What a pod asks for, its load included; raises DemandError."""
        asked = self.asked(pod)
        if asked.wrong is not None:
            raise asked.error or asked.wrong
        return asked.demand

    def asked(self, pod: pods.Pod) -> templates.Asked:
        """The same, or what is wrong with its request."""
        return self._templates.asked(pod, self._unit.settings)

    def release(self, uid: str) -> None:
        """Give back what a pod has."""
        grant = self.fleet.release(uid)
        if grant is not None:
            self.freed(grant.node)

    # What the sinks do together.

    def set_node(self, name: str, *, better: bool = True) -> None:
        """Tell the fleet what is known of a node now."""
        node = self.nodes.facts(name)
        if node is None:
            return
        self.fleet.set_node(node)
        if better:
            self.freed(name)

    def settle(self, name: str) -> None:
        """Look again at the pods of a node whose cards are other ones now."""
        state = self.fleet.state(name)
        if state is None:
            return
        for grant in list(state.grants.values()):
            moved = nodes.rebased(grant, state.node)
            if moved is not grant:
                self.fleet.rename(moved)
        self.pods.settle(name)

    def vote(self, name: str, node: nodes.Node | None) -> None:
        """Take note of the unit that a node counts memory in."""
        turned = self._unit.vote(name, node)
        for each in list(self._unit.voters()) if turned else (name,):
            self.problems.set(f"node {each} (unit)", self._unit.complaint(each))


class _Nobody:
    """A witness for whom nothing is of interest."""

    def seen(self, _pod: pods.Pod) -> None:
        pass

    def gone(self, _uid: str) -> None:
        pass
