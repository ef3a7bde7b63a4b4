"""Binding: from a hold to a bound pod, in one write.

The grant and the dialect's own annotations travel in the Binding itself, and the API server merges
them into the pod in the same transaction that sets its node, if the pod still has the uid and the
version that the Binding names. So a pod is bound with its grant or not at all. It checks nothing of
what a Binding carries, however: names and sizes are checked here, or every later update of the pod
would fail.

What may be concluded from an answer, or from none, is not decided here: :mod:`.binds` has the life
of a bind, and this module tells it what happened.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from partage.core import demands, errors, grants, refusals
from partage.dialects import base, pods, registry
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler import binds, deciding, inquiries, names, wire
from partage.scheduler import patience as patiences
from partage.scheduler import window as windows

log = logging.getLogger(__name__)

_ARGS = msgspec.json.Decoder(wire.BindingArgs)
_OVERLOADED = frozenset({429, 503, 504})
_DECLINED = frozenset({400, 401, 403, 413, 422, 429})  # answers before anything was written


class Refused(errors.PartageError):
    """Why a pod was not bound."""

    code = "not-bound"


class Binder:
    """Answers bind."""

    def __init__(
        self,
        decider: deciding.Decider,
        api: kube.Api,
        asking: inquiries.Inquiries,
        window: windows.Window,
        *,
        clock: Callable[[], float],
        now_ns: Callable[[], int],
        allowed: Callable[[], str],
        patience: patiences.Patience,
        timeout_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._decider = decider
        self._binds = decider.binds
        self._api = api
        self._inquiries = asking
        self._window = window
        self._clock = clock
        self._now_ns = now_ns
        self._allowed = allowed  # why nothing may be bound just now; empty if it may
        self._patience = patience
        self._timeout_s = timeout_s  # of a Binding, from its sending
        self._sleep = sleep
        self._running: dict[str, asyncio.Future[None]] = {}  # one attempt at a time for a pod
        self.bound = self.failed = self.conflicts = self.sent = self.late = 0

    async def bind(self, body: bytes, *, cards_by: str = "", patience_s: float = 0.0) -> bytes:
        """Bind a pod to a node; the reason why not is in the answer.

        ``patience_s`` is how long this scheduler waits, if that is less than the settings say.
        """
        sendable_s = min(self._patience.seconds, patience_s or math.inf) - self._timeout_s
        deadline = self._clock() + max(0.0, sendable_s)
        try:
            args = wire.decode(_ARGS, body, "pod_name", "pod_uid")
            names.check_binding(args)
            await self._alone(args, cards_by, deadline)
        except errors.PartageError as error:
            self.failed += 1
            log.warning("bind: %s", error)
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
        finally:
            del self._running[args.pod_uid]
            done.set_result(None)

    async def _bind(self, args: wire.BindingArgs, cards_by: str, deadline: float) -> None:
        if self._is_settled(args):
            return
        life = self._binds.of(args.pod_uid)
        pod = None if life is None else life.pod
        if pod is None or not pod.metadata.version:
            pod = await self._ask(args)
        if pod.spec.node_name:
            self._check_bound(args, pod)
            return
        demand = self._decider.asked(pod, cards_by)
        if demand is None:
            await self._post(args, pod, base.Marks, deadline)
        else:
            await self._grant(args, pod, demand, deadline)

    def _is_settled(self, args: wire.BindingArgs) -> bool:
        """Whether the pod has its grant already, on the node where it should."""
        fleet, uid = self._decider.mirror.fleet, args.pod_uid
        settled = None if fleet.hold_of(uid) else fleet.grant_of(uid)
        if settled is None:
            return False
        _same_node(args, settled.node)
        return True

    async def _grant(
        self, args: wire.BindingArgs, pod: pods.Pod, demand: demands.PodDemand, deadline: float
    ) -> None:
        self._reserve(args, pod, demand)
        try:
            await self._send(args, pod, deadline)
        except kube_errors.Conflict:
            # The pod is bound, or changed since it was filtered: it has to say which.
            self.conflicts += 1
            pod = await self._ask(args)
            if pod.spec.node_name:
                self._check_bound(args, pod)
            elif isinstance(self._binds.of(args.pod_uid), binds.Held):
                await self._send(args, pod, deadline)
            else:
                raise
        log.info("bound pod %s/%s to node %s", args.pod_namespace, args.pod_name, args.node)

    def _reserve(self, args: wire.BindingArgs, pod: pods.Pod, demand: demands.PodDemand) -> None:
        """What the pod gets: decided on the state of this moment, and recorded in the same step.

        Where an earlier Binding may have happened, it is what that one said, and nothing else.
        """
        life = self._binds.of(args.pod_uid)
        if isinstance(life, binds.InDoubt):
            _same_node(args, life.grant.node)
            return
        held = self._binds.hold(pod, demand, args.node)
        if isinstance(held, refusals.Refusal):
            raise Refused(held.text)

    async def _send(self, args: wire.BindingArgs, pod: pods.Pod, deadline: float) -> None:
        """Send a Binding; again after a pause that the server asks for, if there is time."""
        again = False
        while pause_s := await self._attempt(args, pod, deadline, first=again):
            await self._sleep(pause_s)
            again = True

    async def _attempt(
        self, args: wire.BindingArgs, pod: pods.Pod, deadline: float, *, first: bool
    ) -> float:
        """Send a Binding and tell what became of it; how long to wait before the next attempt."""
        uid = args.pod_uid
        try:
            await self._post(args, pod, lambda: self._begun(args, pod), deadline, first=first)
        except errors.PartageError as error:
            if _is_declined(error):
                self._binds.happen(uid, binds.Declined())
            else:
                self._binds.happen(uid, binds.Unanswered(self._clock()))
            if isinstance(error, kube_errors.TooManyRequests) and error.retry_after_s > 0:
                return self._pause_s(error, deadline)
            raise
        except BaseException:  # a stop of ours, or a mistake: neither says what the server did
            self._binds.happen(uid, binds.Unanswered(self._clock()))
            raise
        self._binds.happen(uid, binds.Accepted())
        return 0.0

    def _pause_s(self, error: kube_errors.TooManyRequests, deadline: float) -> float:
        pause_s = error.retry_after_s
        if self._clock() + pause_s > deadline:
            self.late += 1
            raise _busy(f"it asked for a pause of {pause_s:.1f} s") from error
        return pause_s

    def _begun(self, args: wire.BindingArgs, pod: pods.Pod) -> base.Marks:
        """What the Binding says: what is reserved in the moment in which it is sent."""
        grant = self._binds.send(args.pod_uid, args.node, pod.metadata.version)
        if grant is None:
            raise Refused(
                f"pod {args.pod_namespace}/{args.pod_name} was asked about again while this bind "
                f"waited, and holds nothing on node {args.node} any more"
            )
        return self._marks(grant, pod)

    def _marks(self, grant: grants.Grant, pod: pods.Pod) -> base.Marks:
        mirror = self._decider.mirror
        state = mirror.fleet.state(grant.node)
        if state is None:
            raise Refused(f"node {grant.node} is gone")
        marks = registry.marks(
            grant, pod, state.node, now_ns=self._now_ns(), settings=mirror.settings
        )
        names.check_marks(marks, pod)
        return marks

    async def _post(
        self,
        args: wire.BindingArgs,
        pod: pods.Pod,
        begun: Callable[[], base.Marks],
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
        """Wait for a place, as long as there is time; what is held stays held for the retry."""
        self._check_allowed()
        try:
            await self._window.enter(deadline, first=first)
        except windows.TooLate as late:
            self.late += 1
            raise _busy(str(late)) from None

    def _check_allowed(self) -> None:
        stopped = self._allowed()
        if stopped:
            raise Refused(stopped)

    async def _ask(self, args: wire.BindingArgs) -> pods.Pod:
        """The pod as it is now; what it says settles what was in doubt."""
        asked = grants.Pod(args.pod_uid, args.pod_namespace, args.pod_name)
        try:
            async with asyncio.timeout(self._patience.seconds):
                pod = await self._inquiries.ask(asked)
        except TimeoutError:
            raise Refused("the API server did not answer in time; it is asked again") from None
        uid = pod.metadata.uid
        if uid != args.pod_uid:
            raise Refused(
                f"The pod {args.pod_name} in ns {args.pod_namespace}'s uid is {uid}, "
                f"and it's not equal with expected {args.pod_uid}"
            )
        return pod

    def _check_bound(self, args: wire.BindingArgs, pod: pods.Pod) -> None:
        """The pod says that it is bound; is it still there, and where it should be?"""
        if self._decider.mirror.pods.is_gone(args.pod_uid):
            raise Refused(f"pod {args.pod_namespace}/{args.pod_name} is gone")
        _same_node(args, pod.spec.node_name)


def _busy(why: str) -> Refused:
    return Refused(
        f"the API server is busy ({why}); the pod's GPUs stay reserved until kube-scheduler "
        "tries again"
    )


def _is_declined(error: errors.PartageError) -> bool:
    """Whether a Binding that ended so was not applied, without any doubt."""
    if isinstance(error, kube_errors.Unreachable):
        return not error.sent
    if isinstance(error, kube_errors.ApiError):
        return error.status in _DECLINED
    return not isinstance(error, kube_errors.KubeError)


def _is_overload(error: kube_errors.KubeError) -> bool:
    if isinstance(error, kube_errors.ApiError):
        return error.status in _OVERLOADED
    return isinstance(error, kube_errors.Unreachable) and error.sent


def _same_node(args: wire.BindingArgs, node: str) -> None:
    if node != args.node:
        pod = f"pod {args.pod_namespace}/{args.pod_name}"
        raise Refused(f"{pod} is already bound to node {node}, or about to be")


def _path(args: wire.BindingArgs) -> str:
    return f"/api/v1/namespaces/{args.pod_namespace}/pods/{args.pod_name}"


def _binding(args: wire.BindingArgs, marks: base.Marks, version: int) -> Mapping[str, Any]:
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
