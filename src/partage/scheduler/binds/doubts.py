"""Doubts: what became of Bindings that got no answer is found out, soon and for certain.

The pod is asked at once, and again with growing pauses while the server does not answer. If it has
no node, and still the version that the Binding named, the Binding may yet happen. Then the pod gets
a newer version, on condition that it has the old one: after that the Binding cannot happen any more
(:mod:`.bind_states`). kube-scheduler usually does the same by itself, when it notes on the pod that
the bind failed; the watch brings that, and the doubt has ended before it is looked at here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

import msgspec

from partage.core import grants
from partage.kube import errors as kube_errors
from partage.scheduler.binds import bind_states, pod_lookup, pod_patches

log = logging.getLogger(__name__)

_TICK_S = 0.05
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_ANSWER_S = 5.0


class _Attempts(msgspec.Struct):
    """When a pod is asked for next, and how long to wait after that."""

    next_at: float
    pause_s: float = _FIRST_PAUSE_S


class Doubts:
    """Asks about every doubt until it has ended."""

    def __init__(
        self,
        binds: bind_states.Binds,
        lookup: pod_lookup.PodLookup,
        patches: pod_patches.PodPatches,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._binds = binds
        self._lookup = lookup
        self._patches = patches
        self._clock = clock
        self._attempts: dict[str, _Attempts] = {}
        self._asking: set[str] = set()  # uids of pods that are being asked for

    async def run(self) -> NoReturn:
        """For ever: whatever is in doubt is settled, each by itself."""
        async with asyncio.TaskGroup() as group:
            while True:
                for pod in self._due():
                    group.create_task(self._settle(pod))
                await asyncio.sleep(_TICK_S)

    async def settle(self) -> None:
        """Ask about all doubts whose time has come, once."""
        await asyncio.gather(*map(self._settle, self._due()))

    def _due(self) -> list[grants.Pod]:
        doubts = self._binds.doubts()
        if not doubts and not self._attempts:
            return []
        pending = {doubt.grant.pod.uid for doubt in doubts}
        self._attempts = {uid: a for uid, a in self._attempts.items() if uid in pending}
        return [doubt.grant.pod for doubt in doubts if self._is_due(doubt.grant.pod.uid)]

    def _is_due(self, uid: str) -> bool:
        if uid in self._asking:
            return False
        now = self._clock()
        attempts = self._attempts.setdefault(uid, _Attempts(now))
        if now < attempts.next_at:
            return False
        attempts.next_at = now + attempts.pause_s
        attempts.pause_s = min(2 * attempts.pause_s, _LONGEST_PAUSE_S)
        return True

    async def _settle(self, pod: grants.Pod) -> None:
        self._asking.add(pod.uid)
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self._ask(pod)
        except kube_errors.NotFound as error:
            log.debug("pod %s/%s: %s", pod.namespace, pod.name, error)
        except kube_errors.Conflict as error:
            log.debug("pod %s/%s changed meanwhile: %s", pod.namespace, pod.name, error)
        except (kube_errors.KubeError, TimeoutError) as error:
            log.warning(
                "it is not known yet whether pod %s/%s is bound; asking again: %s",
                *(pod.namespace, pod.name, _reason(error)),
            )
        finally:
            self._asking.discard(pod.uid)

    async def _ask(self, pod: grants.Pod) -> None:
        now = await self._lookup.ask(pod)
        if not isinstance(self._binds.of(pod.uid), bind_states.InDoubt) or not now.metadata.version:
            return
        asked_at = self._clock()
        renewed = await self._patches.renew(pod, now.metadata.version)
        self._lookup.heard(pod.uid, renewed, asked_at)


def _reason(error: Exception) -> str:
    return str(error) or f"no answer within {_ANSWER_S:g} s"
