"""The start of a container: from a call of the kubelet to a container with its cards.

Allocate knows a set of IDs and nothing else, so it answers with a name, takes away what that name
stood for, and never fails: a pod whose Allocate failed is lost for good. PreStartContainer comes
with the same IDs before the container is made. There it is found out whose they are, what was
granted, and whether that can be; the fence is put up, and the specification written. An error in it
keeps the container waiting with our text, and the kubelet tries again until it is cured.

A container can have several resources, and then several names. Each of them stands for all that is
done to the container, so that none can be missing; runtimes put the same file or variable in once.
Only hooks would run twice, so they come with the first of the names in alphabetical order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path

import msgspec

from partage.agent import node_state
from partage.agent.containers import (
    cdi,
    claim_check,
    compatibility,
    container_fence,
    driver_files,
    gate,
)
from partage.agent.pods import identity, node_pods
from partage.agent.resources import device_ids
from partage.core import errors, grants
from partage.dialects import contract, pods, registry
from partage.kubelet import checkpoint, pod_resources

log = logging.getLogger(__name__)

_TURN_S = 5.0  # how long an old status is waited for; the kubelet gives up after 30 s
_AGAIN_S = 0.2


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are on this node."""

    cdi: Path
    checkpoint: Path
    pod_resources: Path


class Starter:
    """Answers the kubelet, for all resources."""

    def __init__(
        self,
        state: node_state.NodeState,
        pods_of_node: node_pods.NodePods,
        *,
        fences: container_fence.Fences,
        files: driver_files.DriverFiles | None,
        paths: Paths,
        begun: Callable[[grants.Grant, cdi.Started], Awaitable[None]],
        callbacks: gate.Callbacks,
        claims: claim_check.ClaimCheck,
    ) -> None:
        self._state = state
        self._pods = pods_of_node
        self._fences = fences
        self._files = files  # None: NVIDIA's runtime brings them
        self._paths = paths
        self._begun = begun
        self._claim_check = claims
        self.started: dict[str, cdi.Started] = {
            container.device: container for container in cdi.everything(paths.cdi)
        }
        self._gate = gate.Gate(state, pods_of_node, self.started, self._granted, callbacks)

    def allocated(self, resource: str, ids: frozenset[str]) -> str:
        """The name of the device that these IDs will be."""
        name = cdi.device(resource, ids)
        try:
            cdi.remove(self._paths.cdi, name)
            self._set_aside(name)
        except OSError as error:
            log.error("the specification of %s cannot be removed: %s", cdi.qualified(name), error)
        return cdi.qualified(name)

    def _set_aside(self, name: str) -> None:
        """The IDs are another container's now; what processes of the last one use still counts.

        The kubelet gives IDs of a pod that was deleted by force away while its processes end.
        """
        before = self.started.pop(name, None)
        if before is not None and self._fences.is_busy(before.tenant):
            aside = msgspec.structs.replace(before, device=f"{name}.{before.uid}")
            self.started[aside.device] = aside

    async def starting(self, resource: str, ids: frozenset[str]) -> None:
        """Make everything ready for the container with these IDs, or say why it cannot start.

        IDs that are not ours were handed out by the plugin before us, in whose answer nothing of
        ours is: such a container starts again as that one wanted it, and is not held.
        """
        if not device_ids.ours(ids):
            log.warning(
                "%s: a container that another plugin allocated starts again, without a fence",
                resource,
            )
            return
        name = cdi.device(resource, ids)
        claim = await self._claim(resource, ids)
        await self._gate.wait(lambda: self._granted(self._pod(claim)))
        pod = self._pod(claim)
        grant = self._granted(pod)
        container = await self._container(claim, grant, pod, name)
        await self._claim_check.check(grant, container, self._claimed(pod, container.name))
        self._gate.admit(grant, container)
        leading = any(
            self._leading(pod, container_name, resource) for container_name in claim.containers
        )
        with self._counted(
            name, _started(grant, container, container_fence.Put(""), resource, name)
        ):
            put = await asyncio.to_thread(self._put, pod, container, claim.containers)
            edits = self._fences.around(
                await asyncio.to_thread(self._edits, pod, grant, container), put
            )
            if not leading:
                edits = msgspec.structs.replace(edits, hooks=())
            started = _started(grant, container, put, resource, name)
            await asyncio.to_thread(cdi.write, self._paths.cdi, started, edits)
        self.started[name] = started
        await self._begun(grant, started)
        log.info(
            "container %s of pod %s/%s starts: cards %s, fence %s",
            container.name,
            pod.metadata.namespace,
            pod.metadata.name,
            [share.index for share in container.shares],
            started.fence,
        )

    @contextlib.contextmanager
    def _counted(self, name: str, started: cdi.Started) -> Iterator[None]:
        """Containers that are admitted meanwhile must fit beside it, though it has no fence yet.

        Nothing waits between admitting and this, so that no other container can come in between.
        """
        before = self.started.get(name)
        self.started[name] = started
        try:
            yield
        except BaseException:
            if before is None:
                self.started.pop(name, None)
            else:
                self.started[name] = before
            raise

    def forget(self, name: str) -> None:
        """A container is gone for good: so is its specification."""
        cdi.remove(self._paths.cdi, name)
        self.started.pop(name, None)

    def enforced(self, pod: pods.Pod) -> grants.Grant | grants.Damage | None:
        """A pod's grant as it is to be enforced: in the unit and in the way it was started with."""
        before = self._before(pod)
        grant = compatibility.enforced(pod, self._state.node, self._settings(pod))
        if before is None or not isinstance(grant, grants.Grant):
            return grant
        return compatibility.held_as(grant, before)

    def outdated(self, pod: pods.Pod) -> bool:
        """Whether a pod that was started would not be taken now, or held otherwise."""
        before = self._before(pod)
        return before is not None and compatibility.outdated(
            pod, self._state.node, self._settings(pod), before
        )

    def _settings(self, pod: pods.Pod) -> contract.Settings:
        return compatibility.counted_as(
            pod, self._state.node, self._state.settings, self._before(pod)
        )

    def _before(self, pod: pods.Pod) -> grants.Grant | None:
        """What a pod was started with; None if it was not, or another version wrote it down."""
        uid = pod.metadata.uid
        own = (started for started in list(self.started.values()) if started.uid == uid)
        return next((grant for started in own if (grant := gate.recorded(started))), None)

    def _claimed(self, pod: pods.Pod, container: str) -> str:
        """The claim that a pod names for a container, with its namespace; empty if none."""
        demand = registry.demand(pod, self._settings(pod))
        named = (c.demand.claim for c in demand.containers if c.name == container) if demand else ()
        return next(iter(named), "")

    async def _claim(self, resource: str, ids: frozenset[str]) -> identity.Claim:
        claims = await self._claims(resource, ids)
        if not claims or any(claim.uid not in self._pods.by_uid for claim in claims):
            await self._pods.catch_up()
        return identity.only(claims, self._pods.by_uid)

    async def _claims(self, resource: str, ids: frozenset[str]) -> tuple[identity.Claim, ...]:
        try:
            written = await asyncio.to_thread(checkpoint.holdings, self._paths.checkpoint)
        except errors.PartageError as error:
            log.warning("%s; asking the kubelet's PodResources instead", error)
        else:
            claims = identity.held(written, resource, ids)
            if claims:
                return claims
        listed = await pod_resources.listed(self._paths.pod_resources)
        await self._pods.catch_up()  # for their uids
        return identity.listed(listed, resource, ids, self._pods.uid_of)

    def _pod(self, claim: identity.Claim) -> pods.Pod:
        """The pod of a claim, which may have gone while its container waited."""
        return self._pods.by_uid[identity.only([claim], self._pods.by_uid).uid]

    def _granted(self, pod: pods.Pod) -> grants.Grant:
        grant = self.enforced(pod)
        if isinstance(grant, grants.Grant):
            return grant
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        why = (
            f"{grant.field}: {grant.problem}"
            if grant
            else "it asks for no card in a dialect that Partage knows"
        )
        raise gate.NotGranted(
            f"pod {name} has no grant for a card on node {self._state.node.name} ({why})",
            instead="add this resource to the managedResources of Partage's extender in the "
            "configuration of kube-scheduler, then delete the pod so that it is placed again",
        )

    async def _container(
        self, claim: identity.Claim, grant: grants.Grant, pod: pods.Pod, name: str
    ) -> grants.ContainerGrant:
        candidates = identity.candidates(claim, grant)
        if len(candidates) == 1:
            return candidates[0]
        before = self.started.get(name)
        last = before.container if before is not None and before.uid == claim.uid else ""
        for _ in range(int(_TURN_S / _AGAIN_S)):
            chosen = identity.starting_now(candidates, await self._pods.statuses(pod), last)
            if chosen is not None:
                return chosen
            await asyncio.sleep(_AGAIN_S)
        names = " or ".join(claim.containers)
        raise identity.Unidentified(
            f"the API server does not say yet whether container {names} starts",
            instead="wait: the kubelet tries again by itself",
        )

    def _put(
        self, pod: pods.Pod, container: grants.ContainerGrant, names: Collection[str]
    ) -> container_fence.Put:
        return self._fences.put(
            container_fence.tenant_name(
                pod.metadata.uid, container.name, container.elastic_gpu or ""
            ),
            container,
            minimum=registry.fence(pod),
            context_bytes=self._state.context_bytes,
            mounted=node_pods.mounted(pod, names),
        )

    def _edits(
        self, pod: pods.Pod, grant: grants.Grant, container: grants.ContainerGrant
    ) -> cdi.Edits:
        node = self._state.node
        environment = registry.environment(grant, container, node, self._settings(pod))
        edits = cdi.Edits(env=tuple(f"{name}={text}" for name, text in environment.items()))
        if self._files is None:
            return edits
        cards_by_uuid = {card.uuid: card for card in node.cards}
        return self._files.edits(cards_by_uuid[share.uuid] for share in container.shares) + edits

    def _leading(self, pod: pods.Pod, container: str, resource: str) -> bool:
        """Whether this is the resource of the container with which hooks come."""
        named = next(s.container for s in pods.spots(pod) if s.container.name == container)
        limits = named.resources.limits
        return resource == min(set(self._state.served) & limits.keys(), default=resource)


def _started(
    grant: grants.Grant,
    container: grants.ContainerGrant,
    put: container_fence.Put,
    resource: str,
    name: str,
) -> cdi.Started:
    return cdi.Started(
        uid=grant.pod.uid,
        container=container.name,
        resource=resource,
        fence=put.level,
        tenant=put.tenant,
        device=name,
        elastic_gpu=container.elastic_gpu or "",
        grant=msgspec.json.encode(grant).decode(),
    )
