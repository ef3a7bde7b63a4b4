"""The gate: a container is let in when its grant goes together with all that was started before.

A pod that was deleted by force is gone for the cluster at once, and its room is granted again. Its
processes end a little later, and have their memory until then. The kubelet, told to try again,
does so after ten seconds and more. So the newcomer waits here, inside its call, and is let in a
moment after the last of those processes has ended. Each container waits for itself: no other is
held up. What does not end in time is told as an error, by which the kubelet tries again.

It does not wait where a pod that stays is in the way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping

import msgspec

from partage.agent import node_state
from partage.agent.containers import cdi, compatibility
from partage.agent.pods import node_pods
from partage.core import errors, grants
from partage.dialects import bound_pods, pods

log = logging.getLogger(__name__)

_PATIENCE_S = 20.0  # the kubelet gives a container 30 s
_AGAIN_S = 0.1  # a look reads one file of each fence that is waited for
_SAID_AFTER_S = 2.0  # most are gone by then, and no event is needed


class NotGranted(errors.PartageError):
    """A container for which no cards were decided, or that cannot have them."""

    code = "not-granted"


class Callbacks(msgspec.Struct, frozen=True):
    """What is done while a container waits; time passes as the clock says."""

    release: Callable[[str], None]  # give back what is left of a pod, if its processes have ended
    tell: Callable[[grants.Pod, str], None]  # the owner of a pod, why it waits
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Gate:
    """Compares grants with what was started on this node, by device."""

    def __init__(
        self,
        state: node_state.NodeState,
        pods_of_node: node_pods.NodePods,
        started: Mapping[str, cdi.Started],
        granted: Callable[[pods.Pod], grants.Grant],
        callbacks: Callbacks,
    ) -> None:
        self._state = state
        self._pods = pods_of_node
        self._started = started
        self._granted = granted
        self._callbacks = callbacks

    async def wait(self, grant_now: Callable[[], grants.Grant]) -> None:
        """Wait while only deleted pods are in the way, and not for too long.

        ``grant_now`` is asked at every look, since the pod may be changed or deleted meanwhile; it
        raises if there is none any more.
        """
        began_at = self._callbacks.clock()
        said = False
        while True:
            grant = grant_now()
            hindered = self._hindrance(grant) and self._after_release(grant)
            waited_s = self._callbacks.clock() - began_at
            if hindered is None or not hindered.waits_for or waited_s >= _PATIENCE_S:
                return
            if not said and waited_s >= _SAID_AFTER_S:
                self._say(grant.pod, hindered)
                said = True
            await self._callbacks.sleep(_AGAIN_S)

    def admit(self, grant: grants.Grant, container: grants.ContainerGrant) -> None:
        """Refuse what cannot be, and what does not go together with pods started before."""
        own = [started for started in self._started.values() if started.uid == grant.pod.uid]
        if container.name not in {started.container for started in own}:  # those that ran may go on
            problem = compatibility.unhealthy(container, self._state.node)
            if problem:
                raise _refused(grant, problem, "wait until it is healthy, or delete the pod")
        before = next((record for started in own if (record := recorded(started))), None)
        problem = compatibility.moved(before, grant) if before is not None else ""
        if problem:
            raise _refused(grant, problem, "delete the pod so that it is placed again")
        hindered = self._hindrance(grant)
        if hindered is not None:
            raise _hindered(grant, hindered)

    def _hindrance(self, grant: grants.Grant) -> compatibility.Hindrance | None:
        running = list(self._running(grant.pod.uid))
        return compatibility.hindrance(grant, running, self._state.node)

    def _after_release(self, grant: grants.Grant) -> compatibility.Hindrance | None:
        """What is still in the way when pods that are gone gave back what they do not use.

        A pod in its grace period is not gone: it may use its card again until the last moment.
        """
        for uid in {started.uid for started in self._started.values()} - self._pods.by_uid.keys():
            self._callbacks.release(uid)
        return self._hindrance(grant)

    def _running(self, but: str) -> Iterator[compatibility.Running]:
        """What other pods have that have been started and have not ended.

        It is the grant as it was then: an edited record takes no room and gives none away.
        A pod that the API server does not know any more counts until it was swept away, and one
        whose specification another version wrote then has all cards, as nobody can say which.
        """
        for started in {started.uid: started for started in self._started.values()}.values():
            pod = self._pods.by_uid.get(started.uid)
            if started.uid == but or (pod is not None and pods.ended(pod)):
                continue
            granted = recorded(started) or self._most(started.uid, pod)
            leaving = pod is None or pod.metadata.deletion_timestamp is not None
            yield compatibility.Running(granted, leaving)

    def _most(self, uid: str, pod: pods.Pod | None) -> grants.Grant:
        """What a pod may have of which nothing readable was written down."""
        if pod is None:
            unknown = pods.Pod(pods.Metadata(uid=uid, name="(unknown)"))
            return bound_pods.everything(unknown, self._state.node)
        try:
            return self._granted(pod)
        except NotGranted:
            return bound_pods.worst(pod, self._state.node, self._state.settings)

    def _say(self, pod: grants.Pod, hindered: compatibility.Hindrance) -> None:
        text = f"the container waits for {_names(hindered)}: {hindered.problem}"
        log.info("pod %s/%s: %s", pod.namespace, pod.name, text)
        self._callbacks.tell(pod, text)


def recorded(started: cdi.Started) -> grants.Grant | None:
    """A grant as it was written down; None if another version of Partage wrote it."""
    try:
        return msgspec.json.decode(started.grant, type=grants.Grant)
    except msgspec.MsgspecError:
        return None


def _hindered(grant: grants.Grant, hindered: compatibility.Hindrance) -> NotGranted:
    if not hindered.waits_for:
        return _refused(grant, hindered.problem, "delete the pod so that it is placed again")
    pod = f"pod {grant.pod.namespace}/{grant.pod.name}"
    return NotGranted(
        f"{pod} has to wait for {_names(hindered)}: {hindered.problem}",
        instead="wait: the kubelet tries again until these processes have ended",
    )


def _names(hindered: compatibility.Hindrance) -> str:
    """Pods that are gone for the cluster; a new one may have the same name, so with their uids."""
    names = [f"pod {pod.namespace}/{pod.name} ({pod.uid})" for pod in hindered.waits_for]
    were = (
        "which was deleted and still has"
        if len(names) == 1
        else "which were deleted and still have"
    )
    return f"{', '.join(names)}, {were} processes on the card"


def _refused(grant: grants.Grant, problem: str, instead: str) -> NotGranted:
    pod = f"pod {grant.pod.namespace}/{grant.pod.name}"
    return NotGranted(f"{pod} cannot have what it was granted: {problem}", instead=instead)
