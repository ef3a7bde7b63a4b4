"""Patches of pods that wait: a newer version, and a node to look at first.

Both go through the pod's status, so the right to write it is all that is needed: nothing that runs
can be changed by it. gpushare's own role allows patches of pods but not of their status; there the
annotation is patched on the pod, and no node can be named.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from partage.core import grants
from partage.dialects import grant_record, pods
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.kube import wire

log = logging.getLogger(__name__)


class PodPatches:
    """The patches, in the way that the server allows."""

    def __init__(self, api: kube.Api, *, now: Callable[[], dt.datetime]) -> None:
        self._api = api
        self._now = now
        self.missing_right = ""  # what to allow, if something is missing

    async def renew(self, pod: grants.Pod, version: int = 0) -> pods.Pod:
        """Give a pod a newer version, if it still has this one; the pod as it is then."""
        named = {"resourceVersion": str(version)} if version else {}
        try:
            return await self._patch(pod, "/status", named, {})
        except kube_errors.Forbidden as error:
            return await self._renew_itself(pod, named, error)

    async def nominate(self, pod: grants.Pod, node: str) -> pods.Pod:
        """Let kube-scheduler look at a node first, and at once."""
        return await self._patch(pod, "/status", {}, {"status": {"nominatedNodeName": node}})

    async def _renew_itself(
        self, pod: grants.Pod, named: Mapping[str, str], refusal: kube_errors.Forbidden
    ) -> pods.Pod:
        try:
            return await self._patch(pod, "", named, {})
        except kube_errors.Forbidden:
            self._complain(refusal)
            raise

    async def _patch(
        self, pod: grants.Pod, part: str, named: Mapping[str, str], more: Mapping[str, Any]
    ) -> pods.Pod:
        moment = self._now().isoformat(timespec="microseconds")
        metadata = {"uid": pod.uid, "annotations": {grant_record.LOOKED_AT: moment}, **named}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}{part}"
        answer = await self._api.patch(path, {"metadata": metadata, **more})
        try:
            return msgspec.json.decode(answer, type=pods.Pod)
        except wire.UNREADABLE as error:
            raise kube_errors.BadAnswer(f"PATCH {path}: the answer cannot be read") from error

    def _complain(self, error: kube_errors.Forbidden) -> None:
        """Once is enough: rights do not change often, and nothing is wrong without this one."""
        if not self.missing_right:
            self.missing_right = (
                f"{error}; it may take a minute and a half to find out what became of a Binding "
                "without an answer, and to start while pods wait: allow 'patch' on pods/status, "
                "as deploy/extender.yaml does"
            )
            log.error("%s", self.missing_right)
