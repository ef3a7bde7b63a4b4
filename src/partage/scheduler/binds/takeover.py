"""Takeover: nothing that a predecessor sent can happen any more, before anything is decided.

The process that led before may have died with Bindings on their way, or may be stopped in the
middle of sending one. Reading the cluster does not show those, and each may yet take the room that
this process would give away. But a Binding names the version of its pod. So every pod that waits
gets a newer version first, and the answers show which of them are bound by now. A predecessor that
gave its lease back has waited for the end of its Bindings, and nothing is to be done after it.

A pod that cannot be written on (a right is missing, a webhook refuses) must not stop everything. It
is asked once no API server can apply what was sent before: the same last resort as for doubts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

from partage.core import grants
from partage.kube import backoff
from partage.kube import errors as kube_errors
from partage.scheduler.binds import bind_states, pod_lookup, pod_patches
from partage.scheduler.mirror import mirror as mirrors

log = logging.getLogger(__name__)

_AT_ONCE = 16
_ANSWER_S = 5.0
_DENIED = (kube_errors.Forbidden, kube_errors.Invalid)


class Takeover:
    """Makes all that was sent before harmless."""

    def __init__(
        self,
        mirror: mirrors.Mirror,
        lookup: pod_lookup.PodLookup,
        patches: pod_patches.PodPatches,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._sleep = sleep
        self._mirror = mirror
        self._lookup = lookup
        self._patches = patches
        self._clock = clock

    async def run(self) -> None:
        """Give all pods that wait a newer version."""
        waiting = list(self._mirror.waiting.values())
        if not waiting:
            return
        began_at = self._clock()
        queue = iter(waiting)
        workers = [self._settle_each(queue, began_at) for _ in range(min(_AT_ONCE, len(waiting)))]
        await asyncio.gather(*workers)
        self._mirror.problems.set("patches of pods/status", self._patches.missing_right)
        took_s = self._clock() - began_at
        log.info("gave %d waiting pods a newer version in %.2f s", len(waiting), took_s)

    async def _settle_each(self, queue: Iterator[grants.Pod], began_at: float) -> None:
        denied = [pod for pod in queue if not await self._settled(pod, began_at)]
        for pod in denied:
            await self._settle_late(pod, began_at)

    async def _settled(self, pod: grants.Pod, began_at: float) -> bool:
        """Whether a pod has a newer version, or needs none; not if it may not be written on."""
        pauses = backoff.Backoff()
        while pod.uid in self._mirror.waiting:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    await self._renew(pod)
                return True
            except _DENIED as error:
                log.warning("pod %s/%s: %s", pod.namespace, pod.name, error)
                return False
            except (kube_errors.KubeError, TimeoutError) as error:
                log.warning("pod %s/%s: %s; trying again", pod.namespace, pod.name, _reason(error))
            if self._clock() - began_at > bind_states.LAST_RESORT_S:
                return False
            await self._sleep(pauses.after_failure_s())
        return True

    async def _renew(self, pod: grants.Pod) -> None:
        asked_at = self._clock()
        try:
            renewed = await self._patches.renew(pod)
        except (kube_errors.NotFound, kube_errors.Conflict):
            # It is gone, or another one; or it changes so often that no patch got through.
            await self._ask(pod)
        else:
            self._lookup.heard(pod.uid, renewed, asked_at)

    async def _ask(self, pod: grants.Pod) -> None:
        try:
            now = await self._lookup.ask(pod)
        except kube_errors.NotFound as error:
            if not error.certain:
                raise
            return
        if now.metadata.uid == pod.uid and not now.spec.node_name:
            raise kube_errors.BadAnswer(
                f"pod {pod.namespace}/{pod.name} did not get a newer version"
            )

    async def _settle_late(self, pod: grants.Pod, began_at: float) -> None:
        """Wait until nothing that was sent before can be applied any more, and ask the pod."""
        pauses = backoff.Backoff()
        while pod.uid in self._mirror.waiting:
            left_s = began_at + bind_states.LAST_RESORT_S - self._clock()
            if left_s > 0:
                await self._sleep(left_s)
                continue
            try:
                async with asyncio.timeout(_ANSWER_S):
                    await self._lookup.ask(pod)
                return
            except kube_errors.NotFound as error:
                if error.certain:
                    return
            except (kube_errors.KubeError, TimeoutError) as error:
                log.warning("pod %s/%s: %s; trying again", pod.namespace, pod.name, _reason(error))
            await self._sleep(pauses.after_failure_s())


def _reason(error: Exception) -> str:
    return str(error) or f"no answer within {_ANSWER_S:g} s"
