"""Binding: from a hold to a bound pod, in one write.

The grant and the dialect's own annotations travel in the Binding itself, and the API server merges
them into the pod in the same transaction that sets its node, if the pod still has the uid. So a pod
is bound with its grant or not at all. It checks nothing of what a Binding carries, however: names
and sizes are checked here, or every later update of the pod would fail.

An answer that does not come is not a "no". While the outcome is unknown the hold stays, another
attempt sends the very same grant, and if there is none the pod is read when nothing that was sent
can happen any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from partage.core import demands, errors, grants, refusals
from partage.dialects import base, pods, registry
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler import deciding, names, wire

log = logging.getLogger(__name__)

_ARGS = msgspec.json.Decoder(wire.BindingArgs)


class Refused(errors.PartageError):
    """Why a pod was not bound."""

    code = "not-bound"


class Binder:
    """Answers bind."""

    def __init__(
        self,
        decider: deciding.Decider,
        api: kube.Api,
        *,
        now_ns: Callable[[], int],
        allowed: Callable[[], str],
        timeout_s: float,
    ) -> None:
        self._decider = decider
        self._api = api
        self._now_ns = now_ns
        self._allowed = allowed  # why nothing may be bound just now; empty if it may
        self._timeout_s = timeout_s
        self._running: dict[str, asyncio.Future[None]] = {}  # one attempt at a time for a pod
        self.bound = self.failed = self.conflicts = 0

    async def bind(self, body: bytes, *, cards_by: str = "") -> bytes:
        """Bind a pod to a node; the reason why not is in the answer."""
        try:
            args = wire.decode(_ARGS, body, "pod_name", "pod_uid")
            names.check_binding(args)
            await self._alone(args, cards_by)
        except errors.PartageError as error:
            self.failed += 1
            log.warning("bind: %s", error)
            return wire.encode(wire.BindingResult(str(error)))
        self.bound += 1
        return wire.encode(wire.BindingResult())

    @property
    def busy(self) -> bool:
        """Whether a bind is under way, or its outcome is not known."""
        return bool(self._running) or self._decider.in_doubt

    async def settle(self) -> None:
        """Look up what became of binds that got no answer."""
        for pod in self._decider.doubts():
            args = wire.BindingArgs(pod.name, pod.namespace, pod.uid)
            try:
                found = await self._pod(args)
            except Refused:
                continue  # another pod of that name: the first one is gone, and so is its hold
            except kube_errors.NotFound:
                self._decider.release(pod.uid)
            except kube_errors.KubeError as error:
                log.warning("whether pod %s/%s is bound: %s", pod.namespace, pod.name, error)
            else:
                self._settled(found)

    def _settled(self, pod: pods.Pod) -> None:
        if pod.spec.node_name:
            self._decider.recall(pod.metadata.uid)
            self._decider.mirror.pods.put(pod)
        else:
            self._decider.release(pod.metadata.uid)

    async def _alone(self, args: wire.BindingArgs, cards_by: str) -> None:
        while (other := self._running.get(args.pod_uid)) is not None:
            await asyncio.wait([other])
        done = self._running[args.pod_uid] = asyncio.get_running_loop().create_future()
        try:
            await self._bind(args, cards_by)
        finally:
            del self._running[args.pod_uid]
            done.set_result(None)

    async def _bind(self, args: wire.BindingArgs, cards_by: str) -> None:
        world, uid = self._decider.mirror.fleet, args.pod_uid
        settled = None if world.hold_of(uid) else world.grant_of(uid)
        if settled is not None:
            _same_node(args, settled.node)
            return
        pod = self._decider.asking(uid) or await self._pod(args)
        if pod.spec.node_name:
            self._already(args, pod)
            return
        demand = self._decider.asked(pod, cards_by)
        if demand is None:
            await self._send(args, base.Marks())
        else:
            await self._grant(args, pod, demand)

    async def _grant(
        self, args: wire.BindingArgs, pod: pods.Pod, demand: demands.PodDemand
    ) -> None:
        held = self._held(args, pod, demand)
        self._decider.begin(held)
        try:
            await self._send(args, self._marks(held, pod))
        except kube_errors.Conflict as conflict:
            await self._resolve(args, conflict)
        except errors.PartageError as error:
            if _unknown(error):
                self._decider.doubt(args.pod_uid)
            else:
                self._decider.release(args.pod_uid)
            raise
        self._decider.confirm(args.pod_uid)
        log.info(
            "bound pod %s/%s to node %s, cards %s",
            args.pod_namespace,
            args.pod_name,
            args.node,
            sorted({share.index for c in held.containers for share in c.shares}),
        )

    def _held(
        self, args: wire.BindingArgs, pod: pods.Pod, demand: demands.PodDemand
    ) -> grants.Grant:
        """What the pod gets: decided on the state of this moment, and recorded in the same step.

        Where an earlier attempt may have succeeded, it is what that one said, and nothing else.
        """
        doubted = self._decider.doubted(args.pod_uid)
        if doubted is not None:
            _same_node(args, doubted.node)
            return doubted
        held = self._decider.hold(pod, demand, args.node)
        if isinstance(held, refusals.Refusal):
            raise Refused(held.text)
        return held

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

    async def _send(self, args: wire.BindingArgs, marks: base.Marks) -> None:
        stopped = self._allowed()
        if stopped:
            raise Refused(stopped)
        body = _binding(args, marks)
        await self._api.create(f"{_path(args)}/binding", body, timeout_s=self._timeout_s)

    async def _resolve(self, args: wire.BindingArgs, conflict: kube_errors.Conflict) -> None:
        """The server says the pod is bound already, or is another one: only the pod knows."""
        self.conflicts += 1
        try:
            pod = await self._pod(args)
        except kube_errors.KubeError as error:
            if isinstance(error, kube_errors.NotFound):
                self._decider.release(args.pod_uid)
            else:
                self._decider.doubt(args.pod_uid)
            raise
        if not pod.spec.node_name:
            self._decider.release(args.pod_uid)
            raise conflict
        self._already(args, pod)

    async def _pod(self, args: wire.BindingArgs) -> pods.Pod:
        pod = await self._api.get(_path(args), pods.Pod)
        uid = pod.metadata.uid
        if uid != args.pod_uid:
            self._decider.release(args.pod_uid)
            raise Refused(
                f"The pod {args.pod_name} in ns {args.pod_namespace}'s uid is {uid}, "
                f"and it's not equal with expected {args.pod_uid}"
            )
        return pod

    def _already(self, args: wire.BindingArgs, pod: pods.Pod) -> None:
        """The pod is bound: what it has is what counts, whatever we wanted to give it."""
        if self._decider.mirror.pods.is_gone(args.pod_uid):
            self._decider.release(args.pod_uid)
            raise Refused(f"pod {args.pod_namespace}/{args.pod_name} is gone")
        self._decider.recall(args.pod_uid)
        self._decider.mirror.pods.put(pod)
        _same_node(args, pod.spec.node_name)


def _unknown(error: errors.PartageError) -> bool:
    """Whether a write that ended so may have happened."""
    if isinstance(error, kube_errors.Unreachable):
        return error.sent
    return isinstance(error, kube_errors.ServerError | kube_errors.BadAnswer)


def _same_node(args: wire.BindingArgs, node: str) -> None:
    if node != args.node:
        pod = f"pod {args.pod_namespace}/{args.pod_name}"
        raise Refused(f"{pod} is already bound to node {node}, or about to be")


def _path(args: wire.BindingArgs) -> str:
    return f"/api/v1/namespaces/{args.pod_namespace}/pods/{args.pod_name}"


def _binding(args: wire.BindingArgs, marks: base.Marks) -> Mapping[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": args.pod_name,
            "namespace": args.pod_namespace,
            "uid": args.pod_uid,
            "annotations": marks.annotations,
            "labels": marks.labels,
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": args.node},
    }
