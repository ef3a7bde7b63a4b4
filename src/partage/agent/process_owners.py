"""Owners of processes: which container a process of the node belongs to, by its cgroup.

A process cannot leave the cgroup of its container, and no other process can enter it. Its path
names the pod and the container, in the form of either cgroup driver of the kubelet:

    .../kubepods/burstable/pod0f1c...-.../<container>
    .../kubepods-burstable-pod0f1c..._....slice/cri-containerd-<container>.scope

What a container makes inside its own cgroup comes behind that, and whatever the node itself is in
comes before; so the first pod of this node that is named is the one. Which of a pod's containers it
is, the kubelet says in the pod's status, a moment after the container has started. Until then it is
known where only one of them has cards.

A process is foreign if it is in no pod, or in one that asks for no card. A pod that this agent does
not know has come or gone in this moment: nothing is proven of its processes. And where the node
itself is in a pod, the part of the path that the agent has as well names the node's surroundings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from partage.agent.containers import cdi
from partage.agent.pods import node_pods
from partage.dialects import bound_pods, pods
from partage.fence import processes

_CONTAINER = re.compile(
    r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?"
    r"/(?:[a-z-]+-)?([0-9a-f]{64})(?=\.scope|/|$)"
)
# What the kubelet makes, static pods among it, whose uid has another form.
_ANY_POD = re.compile(r"kubepods|pod[0-9a-f]{8}")


class Owners(msgspec.Struct, frozen=True):
    """Whose processes are whose, at one moment."""

    containers: Mapping[tuple[str, str], str]  # the tenant, by uid of the pod and container's ID
    alone: Mapping[str, str]  # the tenant of pods of which only one container has cards, by uid
    without_cards: frozenset[str]  # uids of pods that ask for none
    own_cgroups: tuple[str, ...]  # of this process

    def whose(self, process: processes.Facts) -> str:
        """The name of a process's tenant; empty if it has none."""
        for uid, container in _containers(process.cgroups):
            if (uid, container) in self.containers:
                return self.containers[uid, container]
            if uid in self.alone:
                return self.alone[uid]
        return ""

    def is_foreign(self, process: processes.Facts) -> bool:
        """Whether nobody counts what a process holds; false where that is not proven."""
        for path in process.cgroups:
            inside = _beyond(path, self.own_cgroups)
            uid, _ = next(_containers((inside,)), ("", ""))
            if uid not in self.without_cards and _ANY_POD.search(inside):
                return False
        return True


def owners(
    pods_by_uid: Mapping[str, pods.Pod],
    started: Iterable[cdi.Started],
    own_cgroups: tuple[str, ...] = (),
) -> Owners:
    """What is known of the pods of the node and of what was started for them."""
    tenants: dict[str, dict[str, str]] = {}  # by uid, then by name of the container
    for container in started:
        if container.uid in pods_by_uid:
            tenants.setdefault(container.uid, {})[container.container] = container.tenant
    containers = {
        (uid, status.container_id.rpartition("/")[2]): tenants[uid][status.name]
        for uid in tenants
        for status in _statuses(pods_by_uid[uid])
        if status.name in tenants[uid]
    }
    alone = {uid: next(iter(names.values())) for uid, names in tenants.items() if len(names) == 1}
    cardless = frozenset(uid for uid, pod in pods_by_uid.items() if not bound_pods.asks(pod))
    return Owners(containers, alone, cardless, own_cgroups)


def pod_of(process: processes.Facts, uids: Collection[str]) -> str:
    """Which of these pods a process belongs to; empty if to none."""
    return next((uid for uid, _ in _containers(process.cgroups) if uid in uids), "")


def _beyond(path: str, own_cgroups: Iterable[str]) -> str:
    """The part of a path that is not the same as one of ours."""
    parts = path.split("/")
    same = max((_same(parts, own.split("/")) for own in own_cgroups), default=0)
    return "/".join(parts[same:])


def _same(parts: Sequence[str], others: Sequence[str]) -> int:
    """How many parts are equal, from the beginning."""
    pairs = enumerate(zip(parts, others, strict=False))
    return next((i for i, (part, other) in pairs if part != other), min(len(parts), len(others)))


def _containers(cgroups: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in cgroups:
        for uid, container in _CONTAINER.findall(path):
            yield uid.replace("_", "-"), container


def _statuses(pod: pods.Pod) -> Iterator[node_pods.ContainerStatus]:
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        if isinstance(status, node_pods.ContainerStatus) and status.container_id:
            yield status
