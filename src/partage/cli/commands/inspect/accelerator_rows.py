"""Rows of other vendors' accelerators: how many a node has, and who has them.

Partage decides nothing about them. What a node has is what its kubelet says, and who has them are
the pods that are bound there and have not ended, as kube-scheduler counts them.
"""

from __future__ import annotations

import collections

import msgspec

from partage.dialects import nodes, other_accelerators, pods


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that has some."""

    namespace: str
    pod: str
    uid: str
    amount: int


class Accelerators(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of one node."""

    node: str
    resource: str
    accelerator: str  # what it counts: AMD GPU; the vendor's domain where no more is known
    capacity: int
    allocatable: int  # without those that their plugin says are unhealthy
    used: int
    pods: tuple[Holder, ...]


class Collector:
    """Sees nodes and pods go by, and keeps what these rows need."""

    def __init__(self) -> None:
        self._amounts: dict[tuple[str, str], tuple[int, int]] = {}  # by node and resource
        self._holders: dict[tuple[str, str], list[Holder]] = collections.defaultdict(list)

    def see_node(self, node: nodes.Node) -> None:
        """A node; those without such resources leave nothing."""
        for resource in other_accelerators.offered(node):
            amounts = node.amount(resource), node.allocatable(resource)
            self._amounts[node.metadata.name, resource] = amounts

    def see_pod(self, pod: pods.Pod) -> None:
        """A pod; one that is not bound, or has ended, has nothing."""
        if not pod.spec.node_name or pods.ended(pod):
            return
        meta = pod.metadata
        for resource, amount in other_accelerators.taken(pod).items():
            self._holders[pod.spec.node_name, resource].append(
                Holder(namespace=meta.namespace, pod=meta.name, uid=meta.uid, amount=amount)
            )

    def rows(self) -> tuple[Accelerators, ...]:
        """By node and resource; what pods have of a resource that is gone is shown, too."""
        return tuple(
            self._row(*place)
            for place in sorted({*self._amounts, *self._holders})
            if any(self._amounts.get(place, ())) or self._holders.get(place)
        )

    def _row(self, node: str, resource: str) -> Accelerators:
        capacity, allocatable = self._amounts.get((node, resource), (0, 0))
        holders = self._holders.get((node, resource), [])
        return Accelerators(
            node=node,
            resource=resource,
            accelerator=other_accelerators.kind(resource),
            capacity=capacity,
            allocatable=allocatable,
            used=sum(holder.amount for holder in holders),
            pods=tuple(sorted(holders, key=lambda holder: (holder.namespace, holder.pod))),
        )
