"""Binding: from a hold to a bound pod, in one write.

The grant and the dialect's own annotations travel in the Binding itself, and the API server merges
them into the pod in the same transaction that sets its node, if the pod still has the uid and the
version that the Binding names. So a pod is bound with its grant or not at all. It checks nothing of
what a Binding carries, however: names and sizes are checked here, or every later update of the pod
would fail.

What may be concluded from an answer, or from none, is not decided here: this module reports what
happened to :mod:`partage.scheduler.binds.bind_states`, which has the states of every bind.

kube-scheduler writes the reason why a pod was not bound into an event of the pod, so it is a text
for people (:mod:`.bind_texts`); the client's own text is in the log.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import msgspec

from partage.core import demands, errors, grants, refusals
from partage.dialects import contract, pods, registry
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler import kubernetes_names, wire
from partage.scheduler.binds import bind_states, pod_lookup, scheduler_timeout, send_window
from partage.scheduler.claims import claim_grants
from partage.scheduler.mirror import mirror as mirrors
from partage.scheduler.verbs import bind_texts

log = logging.getLogger(__name__)

_ARGS = msgspec.json.Decoder(wire.BindingArgs)
_OVERLOADED = frozenset({429, 503, 504})


Claimed = Callable[
    [pods.Pod, demands.PodDemand, Collection[str]], grants.Grant | claim_grants.Waits
]


class Refused(errors.PartageError):
    """Why a pod was not bound."""

    code = "not-bound"


class Binder:
    """Answers bind."""

    def __init__(
        self,
        mirror: mirrors.Mirror,
        binds: bind_states.Binds,
        api: kube.Api,
        lookup: pod_lookup.PodLookup,
        window: send_window.Window,
        *,
        clock: Callable[[], float],
        now_ns: Callable[[], int],
        allowed: Callable[[], str],
        scheduler_timeout: scheduler_timeout.SchedulerTimeout,
        timeout_s: float,
        claimed: Claimed | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._mirror = mirror
        self._binds = binds
        self._api = api
        self._lookup = lookup
        self._window = window
        self._clock = clock
        self._now_ns = now_ns
        self._allowed = allowed  # why nothing may be bound just now; empty if it may
        self._scheduler_timeout = scheduler_timeout
        self._timeout_s = timeout_s  # for the answer to a Binding, from its sending
        self._claimed = claimed  # what a pod has by its claims
        self._sleep = sleep
        self._running: dict[str, asyncio.Future[None]] = {}  # one attempt at a time for a pod
        self.bound = self.failed = self.conflicts = self.sent = self.late = 0

    async def bind(self, body: bytes, *, cards_by: str = "", timeout_s: float = 0.0) -> bytes:
        """Bind a pod to a node; the reason why not is in the answer.

        ``timeout_s`` is how long this scheduler waits, if that is less than the settings say.
        """
        sendable_s = min(self._scheduler_timeout.seconds, timeout_s or math.inf) - self._timeout_s
        deadline = self._clock() + max(0.0, sendable_s)
        try:
            args = wire.decode(_ARGS, body, "pod_name", "pod_uid")
            kubernetes_names.check_binding(args)
            await self._alone(args, cards_by, deadline)
        except errors.PartageError as error:
            self.failed += 1
            cause = str(error.__cause__ or "")
            log.warning("bind: %s%s", error, f" ({cause})" if cause else "")
            return wire.encode(wire.BindingResult(str(error)))
        self.bound += 1
        return wire.encode(wire.BindingResult())

    @property
    def busy(self) -> bool:
        """Whether a bind is under way, or its outcome is not known."""
        return bool(self._running) or self._binds.unsettled

    async def _alone(self, args: wire.BindingArgs, cards_by: str, deadline: float) -> None:
        while (other := self._running.get(args.pod_uid)) is not None:
            await asyncio.wait([other])
        done = self._running[args.pod_uid] = asyncio.get_running_loop().create_future()
        try:
            await self._bind(args, cards_by, deadline)
        except kube_errors.KubeError as error:
            raise Refused(bind_texts.not_bound(error, args)) from error
        finally:
            del self._running[args.pod_uid]
            done.set_result(None)

    async def _bind(self, args: wire.BindingArgs, cards_by: str, deadline: float) -> None:
        if self._is_settled(args):
            return
        state = self._binds.of(args.pod_uid)
        pod = None if state is None else state.pod
        if pod is None or not pod.metadata.version:
            pod = await self._ask(args)
        if pod.spec.node_name:
            self._check_bound(args, pod)
            return
        demand = self._mirror.demand(pod, cards_by)
        if demand is None:
            await self._post(args, pod, contract.Marks, deadline)
        else:
            await self._grant(args, pod, demand, deadline)

    def _is_settled(self, args: wire.BindingArgs) -> bool:
        """Whether the pod has its grant already, on the node where it should."""
        node = self._mirror.bound_node(args.pod_uid)
        if node:
            _same_node(args, node)
        return bool(node)

    async def _grant(
        self, args: wire.BindingArgs, pod: pods.Pod, demand: demands.PodDemand, deadline: float
    ) -> None:
        self._reserve(args, pod, demand)
        try:
            await self._send(args, pod, deadline)
        except kube_errors.Conflict:
            # The pod is bound, or changed since it was filtered: the pod itself shows which.
            self.conflicts += 1
            pod = await self._ask(args)
            if pod.spec.node_name:
                self._check_bound(args, pod)
            elif isinstance(self._binds.of(args.pod_uid), bind_states.Held):
                await self._send(args, pod, deadline)
            else:
                raise
        log.info("bound pod %s/%s to node %s", args.pod_namespace, args.pod_name, args.node)

    def _reserve(self, args: wire.BindingArgs, pod: pods.Pod, demand: demands.PodDemand) -> None:
        """Decide what the pod gets on the state of this moment, and reserve it in the same step.

        Where an earlier Binding may have happened, it is what that one said, and nothing else.
        """
        state = self._binds.of(args.pod_uid)
        if isinstance(state, bind_states.InDoubt):
            _same_node(args, state.grant.node)
            return
        if demand.by_claim:
            self._reserve_claimed(args, pod, demand)
            return
        held = self._binds.hold(pod, demand, args.node)
        if isinstance(held, refusals.Refusal):
            raise Refused(held.text)

    def _reserve_claimed(
        self, args: wire.BindingArgs, pod: pods.Pod, demand: demands.PodDemand
    ) -> None:
        """What its claims have, as they are at this moment."""
        if self._claimed is None:
            raise Refused("this extender does not serve claims")
        grant = self._claimed(pod, demand, (args.node,))
        if isinstance(grant, claim_grants.Waits):
            raise Refused(grant.text)
        _same_node(args, grant.node)
        self._binds.reserve(pod, grant)

    async def _send(self, args: wire.BindingArgs, pod: pods.Pod, deadline: float) -> None:
        """Send a Binding; again after a pause that the server asks for, if there is time."""
        again = False
        while pause_s := await self._attempt(args, pod, deadline, first=again):
            await self._sleep(pause_s)
            again = True

    async def _attempt(
        self, args: wire.BindingArgs, pod: pods.Pod, deadline: float, *, first: bool
    ) -> float:
        """Send a Binding and report what became of it; how long to wait before the next attempt."""
        uid = args.pod_uid
        try:
            await self._post(args, pod, lambda: self._begun(args, pod), deadline, first=first)
        except BaseException as error:
            self._binds.happen(uid, bind_states.outcome(error, self._clock()))
            if isinstance(error, kube_errors.TooManyRequests) and error.retry_after_s > 0:
                return self._pause_s(error, deadline)
            raise
        self._binds.happen(uid, bind_states.Accepted())
        return 0.0

    def _pause_s(self, error: kube_errors.TooManyRequests, deadline: float) -> float:
        pause_s = error.retry_after_s
        if self._clock() + pause_s > deadline:
            self.late += 1
            reason = f"it asked for a pause of {pause_s:.1f} s"
            raise Refused(bind_texts.BUSY.format(reason=reason)) from error
        return pause_s

    def _begun(self, args: wire.BindingArgs, pod: pods.Pod) -> contract.Marks:
        """What the Binding says: what is reserved in the moment in which it is sent."""
        grant = self._binds.send(args.pod_uid, args.node, pod.metadata.version)
        if grant is None:
            raise Refused(
                f"{bind_texts.pod(args)} was filtered again while this bind waited for its turn, "
                f"and nothing is reserved for it on node {args.node} any more; kube-scheduler "
                "tries again"
            )
        return self._marks(grant, pod)

    def _marks(self, grant: grants.Grant, pod: pods.Pod) -> contract.Marks:
        state = self._mirror.fleet.state(grant.node)
        if state is None:
            raise Refused(f"there is no node {grant.node} any more")
        marks = registry.marks(
            grant, pod, state.node, now_ns=self._now_ns(), settings=self._mirror.settings
        )
        kubernetes_names.check_marks(marks, pod)
        return marks

    async def _post(
        self,
        args: wire.BindingArgs,
        pod: pods.Pod,
        begun: Callable[[], contract.Marks],
        deadline: float,
        *,
        first: bool = False,
    ) -> None:
        await self._enter(deadline, first=first)
        sent_at, pause_s, overloaded = self._clock(), 0.0, False
        try:
            self._check_allowed()
            body = _binding(args, begun(), pod.metadata.version)
            self.sent += 1
            await self._api.create(f"{_path(args)}/binding", body, timeout_s=self._timeout_s)
        except kube_errors.KubeError as error:
            overloaded = _is_overload(error)
            pause_s = getattr(error, "retry_after_s", 0.0)
            raise
        finally:
            self._window.leave(sent_at, overloaded=overloaded, pause_s=pause_s)

    async def _enter(self, deadline: float, *, first: bool) -> None:
        """Wait for a turn, as long as there is time; what is held stays held for the retry."""
        self._check_allowed()
        try:
            await self._window.enter(deadline, first=first)
        except send_window.TooLate as late:
            self.late += 1
            raise Refused(bind_texts.BUSY.format(reason=late)) from None

    def _check_allowed(self) -> None:
        stopped = self._allowed()
        if stopped:
            raise Refused(stopped)

    async def _ask(self, args: wire.BindingArgs) -> pods.Pod:
        """The pod as it is now; that also settles what was in doubt."""
        try:
            async with asyncio.timeout(self._scheduler_timeout.seconds):
                pod = await self._lookup.ask(
                    grants.Pod(args.pod_uid, args.pod_namespace, args.pod_name)
                )
        except (kube_errors.KubeError, TimeoutError) as error:
            raise Refused(bind_texts.not_read(error, args)) from error
        uid = pod.metadata.uid
        if uid != args.pod_uid:
            raise Refused(
                f"The pod {args.pod_name} in ns {args.pod_namespace}'s uid is {uid}, "
                f"and it's not equal with expected {args.pod_uid}"
            )
        return pod

    def _check_bound(self, args: wire.BindingArgs, pod: pods.Pod) -> None:
        """The pod is bound; is it still there, and where it should be?"""
        if self._mirror.pods.is_gone(args.pod_uid):
            raise Refused(f"there is no {bind_texts.pod(args)} any more")
        _same_node(args, pod.spec.node_name)


def _is_overload(error: kube_errors.KubeError) -> bool:
    if isinstance(error, kube_errors.ApiError):
        return error.status in _OVERLOADED
    return isinstance(error, kube_errors.Unreachable) and error.sent


def _same_node(args: wire.BindingArgs, node: str) -> None:
    if node != args.node:
        raise Refused(f"{bind_texts.pod(args)} is already bound to node {node}, or about to be")


def _path(args: wire.BindingArgs) -> str:
    return f"/api/v1/namespaces/{args.pod_namespace}/pods/{args.pod_name}"


def _binding(args: wire.BindingArgs, marks: contract.Marks, version: int) -> Mapping[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": args.pod_name,
            "namespace": args.pod_namespace,
            "uid": args.pod_uid,
            "resourceVersion": str(version) if version else "",
            "annotations": marks.annotations,
            "labels": marks.labels,
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": args.node},
    }
