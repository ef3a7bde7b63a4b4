"""Starting: from a call of the kubelet to a container with its cards.

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
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from partage.agent import (
    admitting,
    cdi,
    counting,
    driver_files,
    fencing,
    gate,
    identity,
    node_pods,
)
from partage.core import cards, errors, grants
from partage.dialects import base, native, pods, registry
from partage.kubelet import checkpoint, pod_resources

log = logging.getLogger(__name__)

_TURN_S = 5.0  # how long an old status is waited for; the kubelet gives up after 30 s
_AGAIN_S = 0.2


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are on this node."""

    cdi: Path
    checkpoint: Path
    pod_resources: Path


class World(Protocol):
    """What the agent knows of its node when a container starts."""

    @property
    def node(self) -> cards.Node:
        """The node with its cards and modes."""

    @property
    def settings(self) -> base.Settings:
        """As the cluster counts."""

    @property
    def context_bytes(self) -> dict[str, int]:
        """What a context costs, by uuid."""

    @property
    def served(self) -> Iterable[str]:
        """The resources that have a plugin here."""


class Starter:
    """Answers the kubelet, for all resources."""

    def __init__(
        self,
        world: World,
        known: node_pods.NodePods,
        *,
        fences: fencing.Fences,
        files: driver_files.DriverFiles | None,
        places: Places,
        begun: Callable[[grants.Grant, cdi.Started], None],
        way: gate.Way,
    ) -> None:
        self._world = world
        self._pods = known
        self._fences = fences
        self._files = files  # None: NVIDIA's runtime brings them
        self._places = places
        self._begun = begun
        self.started: dict[str, cdi.Started] = {
            each.device: each for each in cdi.everything(places.cdi)
        }
        self._gate = gate.Gate(world, known, self.started, self._granted, way)

    def allocated(self, resource: str, ids: frozenset[str]) -> str:
        """The name of the device that these IDs will be."""
        name = cdi.device(resource, ids)
        try:
            cdi.remove(self._places.cdi, name)
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
        if not counting.ours(ids):
            log.warning(
                "%s: a container of another plugin's time starts, without a fence", resource
            )
            return
        name = cdi.device(resource, ids)
        claim = await self._claim(resource, ids)
        await self._gate.wait(lambda: self._granted(self._pod(claim)))
        pod = self._pod(claim)
        grant = self._granted(pod)
        container = await self._container(claim, grant, pod, name)
        self._gate.admit(grant, container)
        leading = any(self._leading(pod, each, resource) for each in claim.containers)
        with self._counted(name, _started(grant, container, fencing.Put(""), resource, name)):
            put = await asyncio.to_thread(self._put, pod, container, claim.containers)
            edits = self._fences.around(
                await asyncio.to_thread(self._edits, pod, grant, container), put
            )
            if not leading:
                edits = msgspec.structs.replace(edits, hooks=())
            started = _started(grant, container, put, resource, name)
            await asyncio.to_thread(cdi.write, self._places.cdi, started, edits)
        self.started[name] = started
        self._begun(grant, started)
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
        """Whoever is admitted meanwhile must go together with this one, though it has no fence yet.

        Between admitting and this nothing waits, so that nobody can come in between.
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
        cdi.remove(self._places.cdi, name)
        self.started.pop(name, None)

    def enforced(self, pod: pods.Pod) -> grants.Grant | grants.Damage | None:
        """A pod's grant as it is to be enforced, in the unit in which the pod was started."""
        return admitting.enforced(pod, self._world.node, self._settings(pod))

    def _settings(self, pod: pods.Pod) -> base.Settings:
        ours = (each for each in list(self.started.values()) if each.uid == pod.metadata.uid)
        before = next((read for each in ours if (read := gate.recorded(each))), None)
        return admitting.counted_as(pod, self._world.node, self._world.settings, before)

    async def _claim(self, resource: str, ids: frozenset[str]) -> identity.Claim:
        claims = await self._claims(resource, ids)
        if not claims or any(claim.uid not in self._pods.known for claim in claims):
            await self._pods.catch_up()
        return identity.only(claims, self._pods.known)

    async def _claims(self, resource: str, ids: frozenset[str]) -> tuple[identity.Claim, ...]:
        try:
            written = await asyncio.to_thread(checkpoint.holdings, self._places.checkpoint)
        except errors.PartageError as error:
            log.warning("%s; asking the kubelet's PodResources instead", error)
        else:
            claims = identity.held(written, resource, ids)
            if claims:
                return claims
        listed = await pod_resources.listed(self._places.pod_resources)
        await self._pods.catch_up()  # for their uids
        return identity.listed(listed, resource, ids, self._pods.uid_of)

    def _pod(self, claim: identity.Claim) -> pods.Pod:
        """The pod of a claim, which may have gone while its container waited."""
        return self._pods.known[identity.only([claim], self._pods.known).uid]

    def _granted(self, pod: pods.Pod) -> grants.Grant:
        found = self.enforced(pod)
        if isinstance(found, grants.Grant):
            return found
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        why = f"{found.field}: {found.problem}" if found else "it asks for no card in words we know"
        raise gate.NotGranted(
            f"pod {name} has no grant for a card on node {self._world.node.name} ({why})",
            instead="let kube-scheduler ask Partage's extender about this resource "
            "(managedResources in its configuration), then delete the pod to place it anew",
        )

    async def _container(
        self, claim: identity.Claim, grant: grants.Grant, pod: pods.Pod, name: str
    ) -> grants.ContainerGrant:
        found = identity.candidates(claim, grant)
        if len(found) == 1:
            return found[0]
        before = self.started.get(name)
        last = before.container if before is not None and before.uid == claim.uid else ""
        for _ in range(int(_TURN_S / _AGAIN_S)):
            chosen = identity.turn(found, await self._pods.statuses(pod), last)
            if chosen is not None:
                return chosen
            await asyncio.sleep(_AGAIN_S)
        names = " or ".join(claim.containers)
        raise identity.Unidentified(
            f"whether container {names} starts is not known to the API server yet",
            instead="the kubelet tries again by itself",
        )

    def _put(
        self, pod: pods.Pod, container: grants.ContainerGrant, names: Collection[str]
    ) -> fencing.Put:
        return self._fences.put(
            f"{pod.metadata.uid}.{container.name}",
            container,
            minimum=native.fence(pod),
            context_bytes=self._world.context_bytes,
            mounted=node_pods.mounted(pod, names),
        )

    def _edits(
        self, pod: pods.Pod, grant: grants.Grant, container: grants.ContainerGrant
    ) -> cdi.Edits:
        world = self._world
        told = registry.environment(grant, container, world.node, self._settings(pod))
        edits = cdi.Edits(env=tuple(f"{name}={text}" for name, text in told.items()))
        if self._files is None:
            return edits
        there = {card.uuid: card for card in world.node.cards}
        return self._files.edits(there[share.uuid] for share in container.shares) + edits

    def _leading(self, pod: pods.Pod, container: str, resource: str) -> bool:
        """Whether this is the resource of the container with which hooks come."""
        named = next(s.container for s in pods.spots(pod) if s.container.name == container)
        limits = named.resources.limits
        return resource == min(set(self._world.served) & limits.keys(), default=resource)


def _started(
    grant: grants.Grant,
    container: grants.ContainerGrant,
    put: fencing.Put,
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
        grant=msgspec.json.encode(grant).decode(),
    )
