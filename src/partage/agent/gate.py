"""The gate: a container is let in when its grant goes together with all that was started before.

A pod that was deleted by force is gone for the cluster at once, and its room is granted again. Its
processes end a little later, and have their memory until then. The kubelet, told to try again,
does so after ten seconds and more. So the newcomer waits here, inside its call, and is let in a
moment after the last of those processes has ended. Each container waits for itself: no other is
held up. What does not end in time is told as an error, by which the kubelet tries again.

Where somebody who stays is in the way, nothing is waited for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Protocol

import msgspec

from partage.agent import admitting, cdi, node_pods
from partage.core import cards, errors, grants
from partage.dialects import pods

log = logging.getLogger(__name__)

_PATIENCE_S = 20.0  # the kubelet gives a container 30 s
_AGAIN_S = 0.1  # a look reads one file of each fence that is waited for
_SAID_AFTER_S = 2.0  # most are gone by then, and nobody needs to be told


class NotGranted(errors.PartageError):
    """A container whose cards nobody decided on, or that cannot have them."""

    code = "not-granted"


class World(Protocol):
    """What the gate has to know of the node."""

    @property
    def node(self) -> cards.Node:
        """The node with its cards."""


class Way(msgspec.Struct, frozen=True):
    """What is done while a container waits; time passes as the clock says."""

    release: Callable[[str], None]  # give back what is left of a pod, if its processes have ended
    tell: Callable[[grants.Pod, str], None]  # the owner of a pod, why it waits
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Gate:
    """Compares grants with what was started on this node, by device."""

    def __init__(
        self,
        world: World,
        known: node_pods.NodePods,
        started: Mapping[str, cdi.Started],
        granted: Callable[[pods.Pod], grants.Grant],
        way: Way,
    ) -> None:
        self._world = world
        self._pods = known
        self._started = started
        self._granted = granted
        self._way = way

    async def wait(self, grant_now: Callable[[], grants.Grant]) -> None:
        """Wait while nobody but deleted pods is in the way, and not for too long.

        ``grant_now`` is asked at every look, since the pod may be changed or deleted meanwhile; it
        raises if there is none any more.
        """
        began_at = self._way.clock()
        said = False
        while True:
            grant = grant_now()
            hindered = self._hindrance(grant) and self._after_release(grant)
            waited_s = self._way.clock() - began_at
            if hindered is None or not hindered.waits_for or waited_s >= _PATIENCE_S:
                return
            if not said and waited_s >= _SAID_AFTER_S:
                self._say(grant.pod, hindered)
                said = True
            await self._way.sleep(_AGAIN_S)

    def admit(self, grant: grants.Grant, container: grants.ContainerGrant) -> None:
        """Refuse what cannot be, and what does not go together with pods started before."""
        ours = [each for each in self._started.values() if each.uid == grant.pod.uid]
        if container.name not in {each.container for each in ours}:  # those that ran may go on
            problem = admitting.sick(container, self._world.node)
            if problem:
                raise _refused(grant, problem, "wait until it is well, or delete the pod")
        before = next((read for each in ours if (read := recorded(each))), None)
        problem = admitting.moved(before, grant) if before is not None else ""
        if problem:
            raise _refused(grant, problem, "delete the pod to place it anew")
        hindered = self._hindrance(grant)
        if hindered is not None:
            raise _hindered(grant, hindered)

    def _hindrance(self, grant: grants.Grant) -> admitting.Hindrance | None:
        running = list(self._running(grant.pod.uid))
        return admitting.hindrance(grant, running, self._world.node)

    def _after_release(self, grant: grants.Grant) -> admitting.Hindrance | None:
        """What is still in the way when pods that are gone gave back what they do not use.

        A pod in its grace period is not gone: it may use its card again until the last moment.
        """
        for uid in {each.uid for each in self._started.values()} - self._pods.known.keys():
            self._way.release(uid)
        return self._hindrance(grant)

    def _running(self, but: str) -> Iterator[admitting.Running]:
        """What other pods have that have been started and have not ended.

        It is the grant as it was then: an edited record takes no room and gives none away.
        A pod that the API server does not know any more counts until it was swept away.
        """
        for each in {each.uid: each for each in self._started.values()}.values():
            pod = self._pods.known.get(each.uid)
            if each.uid == but or (pod is not None and pods.ended(pod)):
                continue
            granted = recorded(each)
            if granted is None and pod is not None:
                granted = self._granted(pod)
            if granted is not None:
                leaving = pod is None or pod.metadata.deletion_timestamp is not None
                yield admitting.Running(granted, leaving)

    def _say(self, pod: grants.Pod, hindered: admitting.Hindrance) -> None:
        text = f"the container waits for {_names(hindered)}: {hindered.problem}"
        log.info("pod %s/%s: %s", pod.namespace, pod.name, text)
        self._way.tell(pod, text)


def recorded(started: cdi.Started) -> grants.Grant | None:
    """A grant as it was written down; None if another version of Partage wrote it."""
    try:
        return msgspec.json.decode(started.grant, type=grants.Grant)
    except msgspec.MsgspecError:
        return None


def _hindered(grant: grants.Grant, hindered: admitting.Hindrance) -> NotGranted:
    if not hindered.waits_for:
        return _refused(grant, hindered.problem, "delete the pod to place it anew")
    pod = f"pod {grant.pod.namespace}/{grant.pod.name}"
    return NotGranted(
        f"{pod} has to wait for {_names(hindered)}: {hindered.problem}",
        instead="wait: the kubelet tries again, and it starts when their processes have ended",
    )


def _names(hindered: admitting.Hindrance) -> str:
    """Pods that are gone for the cluster; a new one may have the same name, so with their uids."""
    names = [f"pod {pod.namespace}/{pod.name} ({pod.uid})" for pod in hindered.waits_for]
    were = "which was deleted and still has" if len(names) == 1 else "which were deleted and have"
    return f"{', '.join(names)}, {were} processes on the card"


def _refused(grant: grants.Grant, problem: str, instead: str) -> NotGranted:
    pod = f"pod {grant.pod.namespace}/{grant.pod.name}"
    return NotGranted(f"{pod} cannot have what it was granted: {problem}", instead=instead)
