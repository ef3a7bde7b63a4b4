"""Sweeping: what containers leave behind is removed when they are gone for good.

A container is gone when its pod has ended, or when the API server no longer knows the pod. (The
kubelet's own record is no help: it forgets a pod when it needs the pod's IDs for another one.) A
fence stays as long as a process uses a card behind it. Nothing here is in a hurry: a set of IDs
that is used again is taken over by Allocate at once.
"""

from __future__ import annotations

from partage.agent import fencing, node_pods, starting
from partage.dialects import pods


class Sweeper:
    """Removes specifications and fences of containers that are gone."""

    def __init__(
        self, starter: starting.Starter, fences: fencing.Fences, known: node_pods.NodePods
    ) -> None:
        self._starter = starter
        self._fences = fences
        self._pods = known

    def sweep(self) -> None:
        """Once; only to be called when all pods of the node have been read."""
        for each in list(self._starter.started.values()):
            if self._is_gone(each.uid):
                self._starter.forget(each.device)
        for name in self._fences.names():
            if self._is_gone(name.partition(".")[0]):
                self._fences.take_down(name)

    def _is_gone(self, uid: str) -> bool:
        pod = self._pods.known.get(uid)
        return pod is None or pods.ended(pod)
