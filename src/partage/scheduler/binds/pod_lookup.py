"""Asks the API server for a pod, and tells the answer to the binds and to the mirror."""

from __future__ import annotations

from collections.abc import Callable

from partage.core import grants
from partage.dialects import pods
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler.binds import bind_states
from partage.scheduler.mirror import mirror as mirrors


class PodLookup:
    """Looks pods up."""

    def __init__(
        self,
        mirror: mirrors.Mirror,
        binds: bind_states.Binds,
        api: kube.Api,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._mirror = mirror
        self._binds = binds
        self._api = api
        self._clock = clock

    async def ask(self, pod: grants.Pod) -> pods.Pod:
        """The pod of that name as it is now; it may be another one, with another uid."""
        asked_at = self._clock()
        try:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
            now = await self._api.get(path, pods.Pod)
        except kube_errors.NotFound as error:
            if error.certain:
                self._binds.gone(pod.uid)
            raise
        self.heard(pod.uid, now, asked_at)
        return now

    def heard(self, uid: str, pod: pods.Pod, asked_at: float) -> None:
        """The API server's answer to a request for the pod with this uid."""
        if pod.metadata.uid != uid or self._mirror.pods.is_gone(uid):
            self._binds.gone(uid)
        elif pod.spec.node_name:
            self._mirror.pods.put(pod)  # what it has is what counts, whatever was planned for it
        else:
            self._binds.happen(uid, bind_states.Seen("", pod.metadata.version, asked_at))
