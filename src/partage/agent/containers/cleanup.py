"""What containers leave behind is removed when they are gone for good.

A container is gone when its pod has ended, or when the API server no longer knows the pod. (The
kubelet's own record does not help: it forgets a pod when it needs the pod's IDs for another one.) A
fence stays as long as a process uses a card behind it, and that of an ElasticGPU as long as a
container has it. Nothing here is in a hurry: a set of IDs that is used again is taken over by
Allocate at once. What cannot be removed is said once, and tried again; it must not end the agent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from partage.agent.containers import container_fence, container_start
from partage.agent.pods import node_pods
from partage.core import errors
from partage.dialects import pods

log = logging.getLogger(__name__)


class Sweeper:
    """Removes specifications and fences of containers that are gone."""

    def __init__(
        self,
        starter: container_start.Starter,
        fences: container_fence.Fences,
        pods_of_node: node_pods.NodePods,
    ) -> None:
        self._starter = starter
        self._fences = fences
        self._pods = pods_of_node
        self._failed: set[str] = set()

    def sweep(self) -> None:
        """Once; only to be called when all pods of the node have been read."""
        for uid in {started.uid for started in self._starter.started.values()}:
            if self._is_gone(uid):
                self.release(uid)
        self._try(self._sweep_fences, "fences")

    def release(self, uid: str) -> None:
        """Remove what is left of a pod that is gone, at once: its room may be somebody's by now.

        A pod that was deleted by force can run on for a while, and has its memory as long as it
        does. So what is behind a fence with living processes is kept, and counts.
        """
        for device, started in list(self._starter.started.items()):
            if started.uid == uid:
                self._try(self._release, device)

    def _release(self, device: str) -> None:
        gone = self._starter.started[device]
        if gone.elastic_gpu in self._in_use(but=device):
            self._starter.forget(device)  # what its processes still have is that of the others
        elif not self._fences.is_busy(gone.tenant):
            self._starter.forget(device)
            self._fences.take_down(gone.tenant)

    def _in_use(self, *, but: str = "") -> set[str]:
        """The ElasticGPUs of other containers, those that are about to start among them."""
        others = (s for device, s in self._starter.started.items() if device != but)
        return {started.elastic_gpu for started in others if started.elastic_gpu}

    def _sweep_fences(self, _what: str) -> None:
        shared = {container_fence.tenant_name("", "", name) for name in self._in_use()}
        for name in self._fences.names():
            is_used = name in shared if container_fence.is_shared(name) else self._lives(name)
            if not is_used:
                self._try(self._fences.take_down, name)
        self._fences.trim()

    def _lives(self, tenant: str) -> bool:
        return not self._is_gone(tenant.partition(".")[0])

    def _try(self, remove: Callable[[str], object], name: str) -> None:
        try:
            remove(name)
        except (OSError, errors.PartageError) as error:
            if name not in self._failed:
                log.warning("%s cannot be removed yet: %s", name, error)
            self._failed.add(name)
        else:
            self._failed.discard(name)

    def _is_gone(self, uid: str) -> bool:
        pod = self._pods.by_uid.get(uid)
        return pod is None or pods.ended(pod)
