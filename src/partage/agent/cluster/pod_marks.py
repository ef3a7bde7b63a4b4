"""Marks on a pod: what is written there once its containers have been given their cards.

The original systems have a second state for that (gpushare's ASSIGNED, gpu-manager's gpu-assigned),
which their tools read, and the grant gets the fence that is in force. Nothing waits for it: a
container starts whether or not the API server can be reached. What should be written is computed
from what was started, again and again, until the pod says so. So nothing is lost when the agent is
killed in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import NoReturn

import msgspec

from partage.agent import node_state
from partage.agent.containers import cdi
from partage.agent.pods import node_pods
from partage.core import grants
from partage.dialects import bound_pods, grant_record, pods, registry
from partage.kube import api as kube
from partage.kube import errors as kube_errors

log = logging.getLogger(__name__)

_AGAIN_S = 5.0


class Marker:
    """Writes on the pods of this node."""

    def __init__(
        self,
        api: kube.Api,
        pods_of_node: node_pods.NodePods,
        state: node_state.NodeState,
        started: Mapping[str, cdi.Started],
    ) -> None:
        self._api = api
        self._pods = pods_of_node
        self._state = state
        self._started = started
        self._due: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()

    def look(self, uid: str) -> None:
        """Something about a pod changed, or something of it was started."""
        if uid not in self._waiting and uid in self._pods.by_uid:
            self._waiting.add(uid)
            self._due.put_nowait(uid)

    async def run(self) -> NoReturn:
        """For ever: write what is not written yet."""
        while True:
            uid = await self._due.get()
            self._waiting.discard(uid)
            try:
                await self._mark(uid)
            except (kube_errors.NotFound, kube_errors.Conflict, kube_errors.Invalid):
                continue  # another pod has its name by now
            except kube_errors.KubeError as error:
                log.warning("%s; trying again in %g s", error, _AGAIN_S)
                asyncio.get_running_loop().call_later(_AGAIN_S, self.look, uid)

    async def _mark(self, uid: str) -> None:
        pod = self._pods.by_uid.get(uid)
        if pod is None:
            return
        recorded = bound_pods.granted(pod, self._state.node, self._state.settings)
        own = (started for started in self._started.values() if started.uid == uid)
        began = [started for started in own if started.fence]
        if not began or not isinstance(recorded, grants.Grant):
            return
        change = changes(pod, recorded, began)
        if change:
            meta = pod.metadata
            path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}"
            # The server refuses it for another uid.
            await self._api.patch(path, {"metadata": {"uid": uid, "annotations": change}})


def changes(pod: pods.Pod, grant: grants.Grant, began: Iterable[cdi.Started]) -> dict[str, str]:
    """The annotations that a pod should have and has not."""
    annotations = registry.assigned(grant)
    if grant_record.GRANT in pod.metadata.annotations:  # not a pod of another system, taken over
        annotations[grant_record.GRANT] = grant_record.encode(
            _fenced(grant, {s.container: s.fence for s in began})
        )
    present = pod.metadata.annotations
    return {name: text for name, text in annotations.items() if present.get(name) != text}


def _fenced(grant: grants.Grant, fences: Mapping[str, str]) -> grants.Grant:
    replace = msgspec.structs.replace
    containers = tuple(replace(c, fence=fences.get(c.name, c.fence)) for c in grant.containers)
    return replace(grant, containers=containers)
