"""Nominations: a node that kube-scheduler did not ask about, though the pod fits there.

kube-scheduler may ask about a part of the nodes (:mod:`.verbs.filter_history`). If the pod fits on
none of those but on another one, it would have to wait until chance brings that one. But there is a
field for it: kube-scheduler looks at a pod's ``nominatedNodeName`` before it looks at any other
node, and writing it wakes the pod. If that node will not do after all, for reasons that are not
ours (a taint, an affinity, too little CPU), kube-scheduler goes on as usual. So a pod is nominated
a few times, to another node each time, and then again after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import NoReturn

import msgspec

from partage.core import demands, grants
from partage.dialects import pods
from partage.kube import errors as kube_errors
from partage.scheduler.binds import pod_patches
from partage.scheduler.mirror import mirror as mirrors

log = logging.getLogger(__name__)

MOST_TRIES = 4  # for a pod
PAUSE_S = 30.0  # after which they begin anew
_LONGEST_PAUSE_S = 900.0
_CANDIDATES = 16  # nodes that are thought of
_MOST_PODS = 1024
_PER_SECOND = 20  # patches


class _Tries(msgspec.Struct):
    """What was tried for one pod."""

    since: float
    nodes: list[str]
    pause_s: float = PAUSE_S  # twice as long after each round in vain


class Nominations:
    """Finds nodes for pods that were refused on a part of them, and names them."""

    def __init__(
        self,
        mirror: mirrors.Mirror,
        patches: pod_patches.PodPatches,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._mirror = mirror
        self._patches = patches
        self._clock = clock
        self._tries: dict[str, _Tries] = {}  # by uid, the latest last
        self._queue: asyncio.Queue[tuple[grants.Pod, str]] = asyncio.Queue(_MOST_PODS)
        self.made = 0

    def missed(
        self, pod: pods.Pod, demand: demands.PodDemand, names: Collection[str], nominated: str = ""
    ) -> None:
        """A pod fits on none of the nodes that were asked about.

        If something else ``nominated`` it, pods may be evicted for it there, and that stays.
        """
        tries = self._tries_of(pod.metadata.uid)
        if len(tries.nodes) >= MOST_TRIES or self._queue.full():
            return
        if nominated and nominated not in tries.nodes:
            return
        node = self._elsewhere(demand, pod.metadata.namespace, names, tries.nodes)
        if node:
            tries.nodes.append(node)
            self._queue.put_nowait((pod.identity, node))

    async def run(self) -> NoReturn:
        """For ever: one nomination after the other, so many a second at most."""
        while True:
            pod, node = await self._queue.get()
            if pod.uid in self._mirror.waiting:
                await self._nominate(pod, node)
                await asyncio.sleep(1 / _PER_SECOND)

    def _tries_of(self, uid: str) -> _Tries:
        now = self._clock()
        tries = self._tries.pop(uid, None)
        if tries is None:
            tries = _Tries(now, [])
        elif now - tries.since > tries.pause_s:
            tries = _Tries(now, [], min(2 * tries.pause_s, _LONGEST_PAUSE_S))
        self._tries[uid] = tries
        if len(self._tries) > _MOST_PODS:
            del self._tries[next(iter(self._tries))]
        return tries

    def _elsewhere(
        self,
        demand: demands.PodDemand,
        namespace: str,
        names: Collection[str],
        tried: Collection[str],
    ) -> str:
        """The best node that was not asked about; one that is open to all, if there is such a one.

        Nothing is held there: the pod may not be allowed on it, and others are.
        """
        most = len(names) + _CANDIDATES
        best = self._mirror.fleet.best(demand, limit=most, namespace=namespace)
        unasked = [node for node in best if node not in names]
        # A nomination may have come while kube-scheduler was busy with the pod, so the same node
        # again is better than none.
        candidates = [node for node in unasked if node not in tried] or unasked
        open_nodes = (node for node in candidates if not self._mirror.nodes.closed(node))
        return next(open_nodes, candidates[0] if candidates else "")

    async def _nominate(self, pod: grants.Pod, node: str) -> None:
        try:
            await self._patches.nominate(pod, node)
        except kube_errors.KubeError as error:
            log.info(
                "pod %s/%s was not nominated to node %s: %s",
                *(pod.namespace, pod.name, node, error),
            )
            return
        self.made += 1
        log.info(
            "pod %s/%s was nominated to node %s: it fits there, and kube-scheduler did not ask",
            *(pod.namespace, pod.name, node),
        )
