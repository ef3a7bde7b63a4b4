"""Identity: for which container of which pod the kubelet is about to start something.

The kubelet names device IDs, and nothing else. Which container has them is written in the kubelet's
own checkpoint before PreStartContainer is called, with the pod's uid, for init containers too.
Reading a file disturbs nobody. The kubelet's PodResources service tells the same of all but init
containers, without the uid; it is asked only where the checkpoint does not answer, because a List
in the midst of an allocation can make the kubelet hand out the same IDs twice.

An ID set matches or it does not: nothing is guessed from numbers, times or order. What matches
twice is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from partage.core import demands, errors, grants
from partage.dialects import pods
from partage.kubelet import checkpoint, pod_resources


class Unidentified(errors.PartageError):
    """Nobody, or more than one, has the IDs that a container is to be started with."""

    code = "not-identified"


class Claim(msgspec.Struct, frozen=True):
    """The owner of a set of IDs: one pod, and those of its containers that have just this set."""

    uid: str
    containers: tuple[str, ...]


def held(
    holdings: Iterable[checkpoint.Holding], resource: str, ids: Collection[str]
) -> tuple[Claim, ...]:
    """The pods that have just these IDs, by the checkpoint."""
    exact = frozenset(ids)
    owners: dict[str, list[str]] = {}
    for holding in holdings:
        if holding.resource == resource and holding.ids == exact:
            owners.setdefault(holding.pod_uid, []).append(holding.container)
    return tuple(Claim(uid, tuple(containers)) for uid, containers in owners.items())


def listed(
    containers: Iterable[pod_resources.Listed],
    resource: str,
    ids: Collection[str],
    uid_of: Callable[[str, str], str],
) -> tuple[Claim, ...]:
    """The same by PodResources, which knows names only; a pod that we do not know has no uid."""
    exact = frozenset(ids)
    owners: dict[str, list[str]] = {}
    for container in containers:
        if container.resource == resource and container.ids == exact:
            uid = uid_of(container.namespace, container.pod)
            owners.setdefault(uid, []).append(container.container)
    return tuple(Claim(uid, tuple(names)) for uid, names in owners.items() if uid)


def only(claims: Iterable[Claim], pods_by_uid: Mapping[str, pods.Pod]) -> Claim:
    """The claim of the one pod that lives; the kubelet may not have forgotten those that ended."""
    living = [c for c in claims if c.uid in pods_by_uid and not pods.ended(pods_by_uid[c.uid])]
    if len(living) == 1:
        return living[0]
    if not living:
        raise Unidentified(
            "no pod of this node holds the devices with which the container is to start",
            instead="wait: the kubelet tries again; if this message stays, delete the pod",
        )
    names = ", ".join(_name(pods_by_uid[claim.uid]) for claim in living)
    raise Unidentified(
        f"the kubelet gave the same devices to several pods ({names})",
        instead="delete all but one of them",
    )


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """What the kubelet last said of a container, and of its life before this one."""

    name: str = ""
    state: pods.State = pods.State()
    last_state: pods.State = pods.State()

    @property
    def finished(self) -> bool:
        """Whether it ran to its end, and all was well."""
        return _exit_code(self.state) == 0

    @property
    def failed(self) -> bool:
        """Whether it ended and will run again."""
        return _exit_code(self.state) not in (None, 0) or (
            self.state.running is None and self.last_state.terminated is not None
        )


def candidates(claim: Claim, grant: grants.Grant) -> list[grants.ContainerGrant]:
    """What the container that is about to start was granted; several, if they are not the same.

    An app container gets the IDs of the init containers before it again, so the two may have the
    same set. Where they were granted the same there is nothing to tell apart.
    """
    containers = [container for container in grant.containers if container.name in claim.containers]
    if not containers:
        raise Unidentified(
            f"the pod's grant has nothing for container {' or '.join(claim.containers)}",
            instead="delete the pod so that it is placed again",
        )
    alike = all(_alike(container, containers[-1]) for container in containers)
    return containers[-1:] if alike else containers


def starting_now(
    containers: Iterable[grants.ContainerGrant], statuses: Mapping[str, Status], last: str
) -> grants.ContainerGrant | None:
    """Which of several candidates starts now; None: what the API server knows is too old to tell.

    Init containers run one after the other, and apps after them. ``last`` is the one for which this
    set of IDs was used last; a status by which that one has not run yet, or still runs, is old.
    """
    for container in containers:
        if container.role is not demands.Role.INIT:
            return container
        status = statuses.get(container.name, Status())
        if status.finished:
            continue
        if status.failed or (status.state.running is None and container.name != last):
            return container
        return None
    return None


def _alike(container: grants.ContainerGrant, other: grants.ContainerGrant) -> bool:
    replace = msgspec.structs.replace
    return replace(container, name="", role=other.role, fence="") == replace(
        other, name="", fence=""
    )


def _exit_code(state: pods.State) -> int | None:
    return None if state.terminated is None else state.terminated.get("exitCode")


def _name(pod: pods.Pod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"
