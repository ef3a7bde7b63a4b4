"""Evictions: the pods on one card are asked to leave, as ``kubectl drain`` asks those of a node.

The Eviction API is asked, so that PodDisruptionBudgets hold: a pod whose budget is used up is asked
for again, until it may go or the time is over. A pod that no controller would make again is left
alone unless it is forced. Those of a DaemonSet go, too: the next one gets another card.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from partage.cli.cluster import cluster_snapshot, mirror_snapshot
from partage.core import grants
from partage.dialects import pods
from partage.kube import errors as kube_errors

_AGAIN_S = 5.0  # after a refusal, as kubectl does
_LOOK_S = 0.5
_STATIC = "kubernetes.io/config.mirror"  # an annotation of pods that the kubelet makes itself


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that has a share of the card."""

    namespace: str
    name: str
    uid: str
    bare: bool  # nobody would make it again
    static: bool
    worst_case: bool  # nothing readable says which cards it has

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


class Left(msgspec.Struct, frozen=True):
    """A pod that is still on the card."""

    namespace: str
    pod: str
    why: str


class Drained(msgspec.Struct, frozen=True):
    """Who left the card, and who did not."""

    evicted: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()


async def drain(
    cluster: cluster_snapshot.Cluster,
    index: int | None,
    *,
    force: bool,
    timeout_s: float | None,
    tell: Callable[[str], None],
) -> Drained:
    """Evict the pods of a card, and wait until they are gone; ``tell`` hears of each step."""
    eviction = _Eviction(cluster, tell)
    left: tuple[Left, ...] = ()
    try:
        async with asyncio.timeout(timeout_s):
            # A pod may have been bound in the moment of the cordon, so the card is looked at again.
            while True:
                holders = await _holders(cluster, index)
                reasons = {holder: _kept(holder, force=force) for holder in holders}
                left = tuple(_left(h, why) for h, why in reasons.items() if why)
                going = [holder for holder, why in reasons.items() if not why]
                if not going:
                    break
                await asyncio.gather(*map(eviction.evict, going))
    except TimeoutError:
        late = (_left(h, f"the time is over; {why}") for h, why in eviction.waiting.items())
        left = (*left, *late)
    return Drained(tuple(eviction.gone), left)


class _Eviction:
    """What became of those that were asked to leave."""

    def __init__(self, cluster: cluster_snapshot.Cluster, tell: Callable[[str], None]) -> None:
        self.gone: list[str] = []
        self.waiting: dict[Holder, str] = {}  # what is waited for
        self._api = cluster.api
        self._tell = tell

    async def evict(self, holder: Holder) -> None:
        """Ask until it may go, then wait until it has gone."""
        await self._until(self._asked, holder, "its eviction was not answered", _AGAIN_S)
        self._tell(f"pod {holder}: evicted; it ends")
        await self._until(self._ended, holder, "it was evicted, and has not ended yet", _LOOK_S)
        del self.waiting[holder]
        self.gone.append(str(holder))
        self._tell(f"pod {holder}: gone")

    async def _until(
        self, done: Callable[[Holder], Awaitable[bool]], holder: Holder, why: str, pause_s: float
    ) -> None:
        self.waiting[holder] = why
        while not await done(holder):  # noqa: ASYNC110 (only the API server knows)
            await asyncio.sleep(pause_s)

    async def _asked(self, holder: Holder) -> bool:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": holder.name, "namespace": holder.namespace},
            "deleteOptions": {"preconditions": {"uid": holder.uid}},
        }
        try:
            await self._api.create(f"{holder.path}/eviction", body)
        except (kube_errors.NotFound, kube_errors.Conflict):
            return True  # it is gone, or another pod has its name
        except kube_errors.TooManyRequests as error:
            if self.waiting[holder] != error.message:
                self._tell(f"pod {holder}: not yet: {error.message}")
            self.waiting[holder] = error.message
            return False
        return True

    async def _ended(self, holder: Holder) -> bool:
        try:
            pod = await self._api.get(holder.path, pods.Pod)
        except kube_errors.NotFound:
            return True
        return pod.metadata.uid != holder.uid or pods.ended(pod)


async def _holders(cluster: cluster_snapshot.Cluster, index: int | None) -> list[Holder]:
    """The pods that have a share of a card of the cluster's one node."""
    seen: dict[str, pods.Pod] = {}

    def see(pod: pods.Pod) -> None:
        seen[pod.metadata.uid] = pod

    mirror = await mirror_snapshot.read(cluster, pods.Pod, see=see)
    state = mirror.fleet.state(cluster.node)
    granted = [] if state is None else list(state.grants.values())
    uuids = {room.card.uuid for room in state.rooms if room.card.index == index} if state else set()
    return [
        _holder(seen[g.pod.uid], worst_case=mirror.pods.is_guessed(g.pod.uid, g.node))
        for g in granted
        if not uuids.isdisjoint(grants.uuids(g)) and g.pod.uid in seen
    ]


def _holder(pod: pods.Pod, *, worst_case: bool) -> Holder:
    meta = pod.metadata
    return Holder(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        bare=pods.controller(pod) is None,
        static=_STATIC in meta.annotations,
        worst_case=worst_case,
    )


def _kept(holder: Holder, *, force: bool) -> str:
    """Why a pod is not evicted; empty if it is."""
    if holder.static:
        return "it is a static pod of its node; remove its manifest there"
    if force:
        return ""
    if holder.worst_case:
        return "nothing readable says which cards it has; --force evicts it"
    return "no controller would make it again; --force evicts it" if holder.bare else ""


def _left(holder: Holder, why: str) -> Left:
    return Left(holder.namespace, holder.name, why)
