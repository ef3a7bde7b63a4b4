"""Whether all nodes of the cluster count memory in the same unit.

Nothing in a request for ``aliyun.com/gpu-mem`` says whether it means GiB or MiB, so a cluster must
have one unit: where nodes differ, a pod is read in the unit of most, and its number means something
else on the others. Each agent writes its unit on its node as a label, so that the API server can be
asked for a node that differs: usually there is none, and however many nodes there are, one is
enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

import msgspec

from partage.dialects import contract, nodes
from partage.kube import api as kube
from partage.kube import errors as kube_errors

log = logging.getLogger(__name__)

_AGAIN_S = 600.0  # all agents ask, and units change when an agent is started anew


class Comparer:
    """Looks for a node that counts otherwise than this one."""

    def __init__(
        self,
        api: kube.Api,
        node: str,
        settings: contract.Settings,
        resources: Sequence[str],
        *,
        differ: Callable[[str], None],
    ) -> None:
        self._api = api
        self._node = node
        self._unit = contract.unit_name(settings.memory_unit_mib)
        self._resources = " and ".join(resources)
        self._differ = differ

    async def run(self) -> NoReturn:
        """For ever: ask now and then."""
        while True:
            try:
                await self.look()
            except kube_errors.KubeError as error:
                log.warning("it is unknown whether all nodes count in %s: %s", self._unit, error)
            await asyncio.sleep(_AGAIN_S)

    async def look(self) -> None:
        """Ask once, and tell if there is such a node.

        Not this one: its label may still be that of an earlier run.
        """
        label = contract.UNIT_LABEL
        query = {
            "labelSelector": f"{label},{label}!={self._unit}",
            "fieldSelector": f"metadata.name!={self._node}",
            "limit": "1",
        }
        for node in (await self._api.get("/api/v1/nodes", _Nodes, query)).items:
            name, unit = node.metadata.name, node.metadata.labels.get(label, "")
            self._differ(
                f"node {self._node} counts {self._resources} in {self._unit}, and node {name} in "
                f"{unit}: pods are read in the unit of most nodes. Start all agents with the same "
                "--memory-unit"
            )


class _Nodes(msgspec.Struct, frozen=True):
    items: tuple[nodes.Node, ...] = ()
