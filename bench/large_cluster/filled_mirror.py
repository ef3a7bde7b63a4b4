"""Filled mirror: what an extender knows of a large cluster, made without a cluster.

Nodes and pods go in where the reflectors would put them, in the same form, so a mirror that was
filled here is the one that a running extender has.
"""

from __future__ import annotations

import gc
import itertools
import random
from collections.abc import Iterable

import msgspec

from bench.large_cluster import realistic_objects
from cluster import api
from partage.core import fleet, refusals
from partage.dialects import contract, memory_units, nodes, pods, registry
from partage.scheduler.mirror import mirror as mirrors


def empty() -> mirrors.Mirror:
    """A mirror of nothing."""
    return mirrors.Mirror(fleet.standard(), memory_units.Unit(contract.Settings()))


def read_pod(made: api.Object) -> pods.Pod:
    """A pod as a reflector would hand it on."""
    return msgspec.convert(made, pods.Pod)


class FilledMirror:
    """A mirror that is filled, and changed, by hand."""

    def __init__(self, mirror: mirrors.Mirror, names: list[str], *, seed: int = 1) -> None:
        self.mirror = mirror
        self.names = names
        self.source = random.Random(seed)
        self._bound: list[pods.Pod] = []
        self._gone: pods.Pod | None = None
        self._numbers = itertools.count()
        for name in names:
            mirror.nodes.put(msgspec.convert(realistic_objects.node(name), nodes.Node))

    def fill(self, count: int) -> None:
        """Bind pods of many sizes, evenly over the nodes."""
        sizes = realistic_objects.sizes_gib(self.source)
        for name, size_gib in zip(self._rounds(count), sizes, strict=False):
            self.bind(size_gib, name)

    def fill_up(self, left_gib: Iterable[int]) -> None:
        """One pod on each card of each node, which leaves so much of it, card by card."""
        for name, left in zip(self._node_of_each_card(), left_gib, strict=False):
            self.bind(realistic_objects.CARD_GIB - left, name)

    def bind(self, size_gib: int, node: str) -> None:
        """Bind one pod, if it fits there."""
        number = next(self._numbers)
        limits = {realistic_objects.MEMORY: size_gib}
        made = realistic_objects.pod(f"pod-{number}", limits, uid=f"uid-{number:032}")
        grant = granted(self.mirror, read_pod(made), node)
        if grant is not None:
            made["metadata"]["annotations"] = grant
            made["spec"]["nodeName"] = node
            self._bound.append(read_pod(made))
            self.mirror.pods.put(self._bound[-1])

    def change(self) -> None:
        """One pod goes, or the one that went before comes back: one node has changed."""
        if self._gone is not None:
            self.mirror.pods.put(self._gone)
            self._gone = None
            return
        self._gone = self.source.choice(self._bound)
        self.mirror.pods.drop(self._gone.metadata.uid)

    def replace(self) -> None:
        """One pod ends, and another one of its size comes to its node."""
        last = self._bound.pop()
        chosen = self.source.randrange(len(self._bound))
        ended, self._bound[chosen] = self._bound[chosen], last
        self.mirror.pods.drop(ended.metadata.uid)
        limits = ended.spec.containers[0].resources.limits
        self.bind(int(limits[realistic_objects.MEMORY]), ended.spec.node_name)

    def _rounds(self, count: int) -> Iterable[str]:
        rounds = -(-count // len(self.names))
        order = self.names * rounds
        self.source.shuffle(order)
        return order[:count]

    def _node_of_each_card(self) -> Iterable[str]:
        return (name for name in self.names for _ in range(realistic_objects.CARDS))


def granted(mirror: mirrors.Mirror, pod: pods.Pod, node: str) -> dict[str, str] | None:
    """What is written on a pod that is given cards of a node; None if it does not fit there.

    The mirror remembers the grant.
    """
    demand, state = mirror.demand(pod), mirror.fleet.state(node)
    assert demand is not None
    assert state is not None
    held = mirror.fleet.hold(pod.identity, demand, node, expires_at=0)
    if isinstance(held, refusals.Refusal):
        return None
    mirror.fleet.confirm(pod.metadata.uid)
    settings = mirror.settings
    marks = registry.marks(held.grant, pod, state.node, now_ns=1, settings=settings)
    return dict(marks.annotations)


def freeze_garbage() -> None:
    """What the extender does about garbage after its first sync."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
