"""Comparing: whether all nodes of the cluster count ``aliyun.com/gpu-mem`` in the same unit.

Nothing in a request says whether it means GiB or MiB, so a cluster must have one unit: where nodes
differ, a pod is read in the unit of most, and its number means something else on the others. Each
agent writes its unit on its node as a label, so that the API server can be asked for a node that
differs: usually it has none to tell, and however many nodes there are, one is enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

import msgspec

from partage.agent import publishing
from partage.dialects import aliyun, nodes
from partage.kube import api as kube
from partage.kube import errors as kube_errors

log = logging.getLogger(__name__)

_AGAIN_S = 600.0  # all agents ask, and units change when an agent is started anew


class Comparer:
    """Looks for a node that counts otherwise than this one."""

    def __init__(
        self, api: kube.Api, node: str, unit: str, *, differ: Callable[[str], None]
    ) -> None:
        self._api = api
        self._node = node
        self._unit = unit
        self._differ = differ

    async def run(self) -> NoReturn:
        """For ever: ask now and then."""
        while True:
            try:
                await self.look()
            except kube_errors.KubeError as error:
                log.warning("whether all nodes count in %s is not known: %s", self._unit, error)
            await asyncio.sleep(_AGAIN_S)

    async def look(self) -> None:
        """Ask once, and tell if there is such a node.

        Not this one: its label may still be that of an earlier run.
        """
        query = {
            "labelSelector": f"{publishing.UNIT_LABEL},{publishing.UNIT_LABEL}!={self._unit}",
            "fieldSelector": f"metadata.name!={self._node}",
            "limit": "1",
        }
        for node in (await self._api.get("/api/v1/nodes", _Nodes, query)).items:
            name, unit = node.metadata.name, node.metadata.labels.get(publishing.UNIT_LABEL, "")
            self._differ(
                f"node {self._node} counts {aliyun.MEMORY} in {self._unit}, and node {name} in "
                f"{unit}: pods are read in the unit of most nodes. Start all agents with the same "
                "--memory-unit"
            )


class _Nodes(msgspec.Struct, frozen=True):
    items: tuple[nodes.Node, ...] = ()
