"""Records for pods whose cards a vendor's plugin chose.

NVIDIA's plugin writes down nowhere which pod has which card. Such a pod would be counted on every
card of its node, and nothing else would fit there. The kubelet knows, so the agent writes the
record that the extender would have written. Where the extender has written one, and the plugin
chose other cards, the record is made true: the container has what the plugin gave it.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import NoReturn

from partage.agent import node_state
from partage.agent.pods import node_pods, vendor_holdings
from partage.core import grants
from partage.dialects import bound_pods, grant_record, pods, registry
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.kubelet import checkpoint
from partage.kubelet import errors as kubelet_errors

log = logging.getLogger(__name__)

_LOOK_S = 2.0


class VendorRecords:
    """Writes on the pods of this node."""

    def __init__(
        self,
        api: kube.Api,
        pods_of_node: node_pods.NodePods,
        state: node_state.NodeState,
        checkpoint_file: Path,
    ) -> None:
        self._api = api
        self._pods = pods_of_node
        self._state = state
        self._checkpoint_file = checkpoint_file

    async def run(self) -> NoReturn:
        """For ever: write what is not written yet."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look()
            except (kubelet_errors.KubeletError, kube_errors.KubeError) as error:
                log.warning("what a vendor's plugin gave away is not recorded yet: %s", error)

    async def _look(self) -> None:
        resources = registry.names().vendor_resources
        asking = [pod for pod in self._pods.by_uid.values() if _asks(pod, resources)]
        if not asking:
            return
        holdings = await asyncio.to_thread(checkpoint.holdings, self._checkpoint_file)
        held = vendor_holdings.by_pod(holdings, resources, self._state.node.cards)
        for pod in asking:
            cards = held.get(pod.metadata.uid)
            if cards is not None:
                await self._record(pod, cards)

    async def _record(self, pod: pods.Pod, cards: vendor_holdings.CardsByContainer) -> None:
        """Write the grant of a pod on these cards, unless it is written."""
        grant = bound_pods.on_cards(pod, self._state.node, self._state.settings, cards)
        if not isinstance(grant, grants.Grant):
            return  # it does not ask for that many: what it has is counted in the worst case
        present = bound_pods.granted(pod, self._state.node, self._state.settings)
        if isinstance(present, grants.Grant) and _uuids(present) == _uuids(grant):
            return
        meta = pod.metadata
        path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}"
        annotations = {grant_record.GRANT: grant_record.encode(grant)}
        log.info("pod %s/%s has cards of another plugin: recorded", meta.namespace, meta.name)
        try:  # the server refuses it for another uid
            change = {"metadata": {"uid": meta.uid, "annotations": annotations}}
            await self._api.patch(path, change)
        except (kube_errors.NotFound, kube_errors.Conflict, kube_errors.Invalid):
            return  # another pod has its name by now


def _asks(pod: pods.Pod, resources: frozenset[str]) -> bool:
    return not pods.ended(pod) and not resources.isdisjoint(pods.resources(pod))


def _uuids(grant: grants.Grant) -> dict[str, set[str]]:
    return {c.name: {share.uuid for share in c.shares} for c in grant.containers}
