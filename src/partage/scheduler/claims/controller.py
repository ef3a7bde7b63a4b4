"""The controller of claims: carries out the writes that :mod:`.lifecycle` computes, one by one.

It runs in the extender, because the fleet that decides about pods decides about claims, too, and
only while this process leads and has read everything. Each write names the version of the object
that it was computed from, so one that comes late fails. After a write the object's event brings the
next one; a write that failed is computed anew after a pause.

Shares are decided and held in one step, then written on the object. While the answer is not there
they stay held: only the object itself shows what became of it (:meth:`Controller._ascertain`).
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

import msgspec

from partage.core import demands, fleet, grants, refusals
from partage.dialects.claims import objects
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.kube import events
from partage.scheduler.claims import claim_store, lifecycle

log = logging.getLogger(__name__)

TOUCHED = "partage.dev/touched"
_IDLE_S = 0.05
_PAUSE_S = 1.0  # after a write that failed
_LAST_S = 5.0  # for all answers at the end, as a process that ends is not waited for long
_MOST_AT_ONCE = 8  # writes that are under way
_TOLD_EVERY = dt.timedelta(seconds=30)  # how much is missing changes whenever a pod comes or goes
_WARNINGS = {
    "NotFound",
    "Unavailable",
    "Invalid",
    "ClassNotFound",
    "Taken",
    "Unsuited",
    "ClaimHasAnother",
    "Damaged",
    lifecycle.NO_ROOM,
}


class Controller:
    """Keeps claims and ElasticGPUs going."""

    def __init__(
        self,
        store: claim_store.ClaimStore,
        fleet: fleet.Fleet,
        api: kube.Api,
        written_events: events.Events,
        *,
        leading: Callable[[], bool],
        now: Callable[[], dt.datetime],
        freed: Callable[[str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._api = api
        self._events = written_events
        self._leading = leading  # and everything was read
        self._now = now
        self._freed = freed
        self._sleep = sleep
        self._busy: set[str] = set()  # objects whose write is under way
        self._doubts: set[str] = set()  # ElasticGPUs that nobody has answered a write about
        self._told: dict[str, dt.datetime] = {}  # objects: when it was written what is missing
        # Objects of which something else is missing by now, and where they are due.
        self._outdated: dict[str, dict[str, None]] = {}
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)
        self.writes = 0

    async def run(self) -> NoReturn:
        """Carry out what is due, for ever."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._sleep(_IDLE_S)
                if self._leading():
                    self.begin_due(group)
        raise AssertionError("a loop without an end has ended")

    async def settle(self) -> None:
        """Before a new leader decides anything: what its predecessor sent can no longer happen.

        An object without shares, or without a claim, gets a new version, so that what is on its way
        to it is refused. What was made before is shown by the list that this leader has read.
        """
        by_name = self._store.elastic_gpus.by_name
        unwritten = iter([name for name, this in by_name.items() if not objects.is_given(this)])

        async def touch_each() -> None:
            for name in unwritten:
                await self._touch_at_last(name)

        await asyncio.gather(*(touch_each() for _ in range(_MOST_AT_ONCE)))

    async def finish(self) -> bool:
        """At the end: whether nothing that was sent can happen any more."""
        try:
            async with asyncio.timeout(_LAST_S):
                for name in list(self._doubts):
                    await self._ascertain(name)
        except (kube_errors.KubeError, TimeoutError) as error:
            log.warning("what became of ElasticGPUs is not known: %s", str(error) or "no answer")
        return not self._doubts

    def begin_due(self, group: asyncio.TaskGroup) -> None:
        """Begin the writes that are due, in the group."""
        self._look_at_outdated()
        for due, view, following in (
            (self._store.due_elastic_gpus, self._store.elastic_gpu_view, self._next_elastic_gpu),
            (self._store.due_claims, self._store.claim_view, self._next_claim),
        ):
            for key in [key for key in due if key not in self._busy][:_MOST_AT_ONCE]:
                del due[key]
                if view(key) is not None:
                    self._busy.add(key)
                    group.create_task(self._guarded(key, due, following))

    async def _guarded(
        self, key: str, due: dict[str, None], following: Callable[[str], lifecycle.Action | None]
    ) -> None:
        try:
            async with self._turns:
                if not self._leading():
                    due[key] = None  # it may lead again before anything else makes it due
                elif (action := following(key)) is not None:
                    await self._carry_out(action)
        except kube_errors.KubeError as error:
            if not isinstance(error, kube_errors.Conflict | kube_errors.NotFound):
                log.warning("claims: %s", error.what)
            await self._sleep(_PAUSE_S)
            due[key] = None
        finally:
            self._busy.discard(key)

    def _next_claim(self, uid: str) -> lifecycle.Action | None:
        view = self._store.claim_view(uid)
        return None if view is None else lifecycle.next_for_claim(view)

    def _next_elastic_gpu(self, name: str) -> lifecycle.Action | None:
        view = self._store.elastic_gpu_view(name)
        if view is not None and name in self._doubts:
            return lifecycle.Ascertain(name)
        return None if view is None else lifecycle.next_for_elastic_gpu(view)

    async def _carry_out(self, action: lifecycle.Action) -> None:
        self.writes += 1
        match action:
            case lifecycle.Create(claim, gpu_class):
                await self._api.create(
                    objects.ELASTIC_GPUS_PATH, objects.unallocated(claim, gpu_class)
                )
            case lifecycle.Ascertain(name):
                await self._ascertain(name)
            case lifecycle.Allocate(this, alternatives):
                await self._allocate(this, alternatives)
            case lifecycle.Name(claim, name):
                spec = {"spec": {"elasticGPUName": name}}
                await self._patch(_claim_path(claim), claim.metadata, spec)
            case lifecycle.Assign(this, claim):
                await self._assign(this, claim)
            case lifecycle.Protect(target, protected):
                await self._protect(target, protected=protected)
            case lifecycle.SetClaim():
                await self._set_claim(action)
            case lifecycle.SetElasticGPU():
                await self._set_elastic_gpu(action)
            case lifecycle.Delete(this):
                await self._delete(this.metadata)

    async def _allocate(
        self, this: objects.ElasticGPU, alternatives: tuple[demands.Demand, ...]
    ) -> None:
        """Decide and hold in one step, then write; a refusal is written as the reason to wait."""
        name = this.metadata.name
        held = self._hold(this, alternatives)
        if isinstance(held, str):
            await self._refused(this, held)
            return
        await self._give(this, objects.allocated(this, held), declined=lambda: self._release(name))

    async def _assign(self, this: objects.ElasticGPU, claim: objects.ElasticGPUClaim) -> None:
        """Shares that are there count for the namespace that gets them before that is written."""
        if not self._store.promise(this, claim):
            return
        owner = {"spec": {"claimRef": objects.claim_ref(claim)}}
        await self._give(this, owner, declined=lambda: self._store.take_back(this.metadata.name))

    async def _give(
        self, this: objects.ElasticGPU, body: Mapping[str, Any], *, declined: Callable[[], None]
    ) -> None:
        """Write shares, or whose they are; without an answer nobody knows what became of that."""
        name = this.metadata.name
        try:
            await self._patch(objects.elastic_gpu_path(name), this.metadata, body)
        except BaseException as error:
            if _was_declined(error):
                declined()
            else:
                self._doubts.add(name)
                self._store.due_elastic_gpus[name] = None
            raise

    async def _refused(self, this: objects.ElasticGPU, text: str) -> None:
        """Write why there are no shares."""
        waiting = lifecycle.SetElasticGPU(this, objects.Phase.PENDING, lifecycle.NO_ROOM, text)
        status = this.status
        if (status.phase, status.reason, status.message) != (waiting.phase, waiting.reason, text):
            await self._set_elastic_gpu(waiting)

    def _can_wait(self, key: str, due: dict[str, None], before: str, reason: str) -> bool:
        """Whether only the amounts have changed that are missing, and that was told lately."""
        if reason != lifecycle.NO_ROOM:
            return False
        if before == reason and self._was_told_lately(key):
            self._outdated[key] = due
            return True
        self._told = {other: at for other, at in self._told.items() if self._is_recent(at)}
        self._told[key] = self._now()
        return False

    def _was_told_lately(self, key: str) -> bool:
        return key in self._told and self._is_recent(self._told[key])

    def _is_recent(self, at: dt.datetime) -> bool:
        return abs(self._now() - at) < _TOLD_EVERY  # whichever way a clock was set

    def _look_at_outdated(self) -> None:
        for key in [key for key in self._outdated if not self._was_told_lately(key)]:
            due = self._outdated.pop(key)
            due[key] = None

    def _hold(
        self, this: objects.ElasticGPU, alternatives: tuple[demands.Demand, ...]
    ) -> grants.Grant | str:
        """Shares on the best node for any of the alternatives; or why there are none."""
        owner = objects.owner(this.metadata.name, this.claim_key)
        among = self._candidates(this)
        reason = "no node has what it asks for"
        uuids = self._named_cards(this)
        for alternative in alternatives:
            demand = msgspec.structs.replace(alternative, uuids=uuids)
            pod_demand = demands.PodDemand(
                containers=(demands.ContainerDemand("", demand),), dialect="elastic"
            )
            nodes = self._fleet.best(pod_demand, among=among, namespace=owner.namespace)
            if not nodes:
                reason = self._reason(pod_demand, among, owner.namespace) or reason
                continue
            held = self._fleet.hold(owner, pod_demand, nodes[0], expires_at=math.inf)
            if not isinstance(held, refusals.Refusal):
                return held.grant
            reason = held.text
        return reason

    def _named_cards(self, this: objects.ElasticGPU) -> tuple[str, ...]:
        """The cards that an administrator chose by the names of their GPU objects."""
        names = set(this.gpu_names)
        return tuple(
            card.uuid
            for state in (self._fleet.states() if names else ())
            for card in state.node.cards
            if objects.gpu_name(state.node.name, card.index) in names
        )

    def _candidates(self, this: objects.ElasticGPU) -> set[str] | None:
        """The nodes on which it may be; None: any."""
        ref = this.spec.claim_ref
        nodes = self._store.wanted.get(ref.uid) if ref is not None else None
        if this.node_name:
            return {this.node_name}
        return None if nodes is None else set(nodes)

    def _reason(self, demand: demands.PodDemand, among: set[str] | None, namespace: str) -> str:
        beyond = self._fleet.beyond(demand, namespace, among)
        if beyond:
            return next(iter(beyond.values())).told("this claim")
        refused = self._fleet.refuse(demand, among)
        return refusals.furthest(refused).text if refused else ""

    async def _ascertain(self, name: str) -> None:
        """Find out what became of a write without an answer: the object shows it.

        It gets a new version first, so that what was sent can no longer happen.
        """
        try:
            await self._touch(name)
            this = await self._api.get(objects.elastic_gpu_path(name), objects.ElasticGPU)
        except kube_errors.NotFound:
            self._doubts.discard(name)
            self._release(name)
            return
        self._doubts.discard(name)
        if objects.recorded(this) is None:
            self._release(name)
        self._store.elastic_gpus.put(this)

    def _release(self, name: str) -> None:
        grant = self._fleet.release(objects.owner(name).uid)
        if grant is not None:
            self._freed(grant.node)

    async def _touch_at_last(self, name: str) -> None:
        """Give an object a new version, however long the API server takes to answer."""
        while True:
            try:
                await self._touch(name)
            except kube_errors.NotFound:
                pass  # nothing can be written on what is gone
            except kube_errors.KubeError as error:
                log.warning("claims: %s; trying again", error.what)
                await self._sleep(_PAUSE_S)
                continue
            return

    async def _touch(self, name: str) -> None:
        """Give an object a new version: by a text that it never had, as a clock may stand still."""
        touched = {TOUCHED: uuid.uuid4().hex}
        await self._api.patch(
            objects.elastic_gpu_path(name), {"metadata": {"annotations": touched}}
        )

    async def _protect(
        self, target: objects.ElasticGPUClaim | objects.ElasticGPU, *, protected: bool
    ) -> None:
        is_claim = isinstance(target, objects.ElasticGPUClaim)
        ours = objects.CLAIM_FINALIZER if is_claim else objects.ELASTIC_GPU_FINALIZER
        others = [name for name in target.metadata.finalizers if name != ours]
        finalizers = [*others, ours] if protected else others
        path = (
            _claim_path(target)
            if isinstance(target, objects.ElasticGPUClaim)
            else objects.elastic_gpu_path(target.metadata.name)
        )
        await self._patch(path, target.metadata, {"metadata": {"finalizers": finalizers}})

    async def _set_claim(self, action: lifecycle.SetClaim) -> None:
        claim, meta = action.claim, action.claim.metadata
        said = lifecycle.condition(claim)
        before = said.reason if said is not None else ""
        if self._can_wait(meta.uid, self._store.due_claims, before, action.reason):
            return
        this = self._store.elastic_gpu_of(claim)
        bound = action.phase is objects.ClaimPhase.BOUND and this is not None
        status: dict[str, Any] = objects.bound_status(this) if bound and this is not None else {}
        status |= {"phase": str(action.phase), "conditions": [self._condition(action)]}
        await self._patch(_claim_path(claim, "status"), meta, {"status": status})
        if before != action.reason or action.reason != lifecycle.NO_ROOM:
            text = action.message or f"bound to ElasticGPU {claim.spec.elastic_gpu_name}"
            await self._tell("ElasticGPUClaim", meta, action.reason, text)

    async def _set_elastic_gpu(self, action: lifecycle.SetElasticGPU) -> None:
        this = action.elastic_gpu
        name, due = this.metadata.name, self._store.due_elastic_gpus
        if self._can_wait(name, due, this.status.reason, action.reason):
            return
        status = {
            "phase": str(action.phase),
            "reason": action.reason,
            "message": action.message,
        }
        path = objects.elastic_gpu_path(this.metadata.name, "status")
        await self._patch(path, this.metadata, {"status": status})
        if action.reason and action.reason != lifecycle.NO_ROOM:  # that is told to the claim
            await self._tell("ElasticGPU", this.metadata, action.reason, action.message)

    async def _tell(self, kind: str, meta: objects.Metadata, reason: str, text: str) -> None:
        """Once for each change: it was written on the object, which the next leader reads."""
        about = events.About(kind, meta.name, meta.uid, meta.namespace, objects.API_VERSION)
        importance = events.WARNING if reason in _WARNINGS else events.NORMAL
        await self._events.tell(about, reason, text, kind=importance, news=True)

    def _condition(self, action: lifecycle.SetClaim) -> dict[str, Any]:
        status = "True" if action.phase is objects.ClaimPhase.BOUND else "False"
        before = lifecycle.condition(action.claim)
        same_since = before.last_transition_time if before and before.status == status else None
        return {
            "type": lifecycle.BOUND,
            "status": status,
            "reason": action.reason,
            "message": action.message,
            "lastTransitionTime": same_since or self._now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            "observedGeneration": action.claim.metadata.generation,
        }

    async def _delete(self, seen: objects.Metadata) -> None:
        """Delete an ElasticGPU that is still as it was seen; a person may just be keeping it."""
        path = objects.elastic_gpu_path(seen.name)
        await self._api.delete(path, uid=seen.uid, version=seen.resource_version)

    async def _patch(self, path: str, seen: objects.Metadata, body: Mapping[str, Any]) -> None:
        """Change an object that is still as it was seen; else it is a Conflict."""
        metadata = {
            **body.get("metadata", {}),
            "resourceVersion": seen.resource_version,
            "uid": seen.uid,
        }
        await self._api.patch(path, {**body, "metadata": metadata})


def _claim_path(claim: objects.ElasticGPUClaim, subresource: str = "") -> str:
    return objects.claim_path(claim.metadata.namespace, claim.metadata.name, subresource)


def _was_declined(error: BaseException) -> bool:
    """Whether nothing was written for sure."""
    if isinstance(error, kube_errors.Unreachable):
        return not error.sent
    return isinstance(error, kube_errors.ApiError) and error.status < 500
