"""What the cluster is told of this node's cards: labels, annotations, capacities.

An annotation has all of it, for the scheduler. Labels have what people select nodes by, and amounts
go into the node's status, both in the words of the dialects. And a ConfigMap lists unhealthy cards
for those who read only that.

The node is watched, and whatever differs from what should be there is written; so it is right again
after somebody edited it, and nothing is written while all is well, because every change of a node
makes kube-scheduler look at its waiting pods again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn

import msgspec

import partage
from partage.agent import node_state
from partage.core import cards
from partage.dialects import contract, nodes, registry
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.kube.reflection import reflector

log = logging.getLogger(__name__)

FENCE_LABEL = "partage.dev/fence"
_UNHEALTHY_BEFORE = (
    "it was unhealthy before the agent started, and nothing says that it is healthy again"
)
_AGAIN_S = 5.0
_MOMENT_S = 0.05


class Description(msgspec.Struct, frozen=True):
    """What the object of a node should say."""

    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    capacity: dict[str, str] = {}


class Publisher:
    """Keeps this node's object in the cluster as it should be."""

    def __init__(
        self,
        api: kube.Api,
        name: str,
        state: node_state.NodeState,
        *,
        fence: str,
        changed: Callable[[nodes.Node], None],
    ) -> None:
        self._api = api
        self._path = f"/api/v1/nodes/{name}"
        self._unhealthy_path = "/api/v1/namespaces/kube-system/configmaps"
        self._name = name
        self._state = state
        self._fence = fence
        self._changed = changed  # labels may mean other modes now; and the kubelet has its say
        self._node: nodes.Node | None = None
        self._unhealthy_told: str | None = None
        self._due = asyncio.Event()
        self.reflector = reflector.Reflector(
            api,
            "/api/v1/nodes",
            nodes.Node,
            self,
            key=lambda node: node.metadata.name,
            query={"fieldSelector": f"metadata.name={name}"},
        )

    def put(self, node: nodes.Node) -> None:
        self._node = node
        self._state.set_labels(node.metadata.labels)
        self._state.set_annotations(node.metadata.annotations)
        self._changed(node)
        self._due.set()

    def drop(self, key: str) -> None:
        self._node = None

    def keys(self) -> Collection[str]:
        return [] if self._node is None else [self._node.metadata.name]

    def look(self) -> None:
        """Something about the cards changed."""
        self._due.set()

    async def run(self) -> NoReturn:
        """For ever: write what differs."""
        while True:
            await self._due.wait()
            await asyncio.sleep(_MOMENT_S)
            self._due.clear()
            try:
                await self._publish()
            except kube_errors.KubeError as error:
                log.warning("%s; trying again in %g s", error, _AGAIN_S)
                await asyncio.sleep(_AGAIN_S)
                self._due.set()

    async def _publish(self) -> None:
        node = self._node
        if node is None or not self._state.node.cards:
            return
        description = described(self._state, node.metadata.labels, fence=self._fence)
        meta = {
            "annotations": _differing(description.annotations, node.metadata.annotations),
            "labels": _differing(description.labels, node.metadata.labels)
            | _outdated(description.labels, node.metadata.labels),
        }
        if any(meta.values()):
            await self._api.patch(self._path, {"metadata": meta})
        capacity = _differing(description.capacity, _texts(node))
        if capacity:
            status = {"capacity": capacity, "allocatable": capacity}
            await self._api.patch(f"{self._path}/status", {"status": status})
        await self._tell_unhealthy()

    async def _tell_unhealthy(self) -> None:
        """Only if it was told before, or there is something to tell."""
        unhealthy = ",".join(str(card.index) for card in self._state.node.cards if not card.healthy)
        if unhealthy == self._unhealthy_told or not (unhealthy or self._unhealthy_told is not None):
            return
        name = f"unhealthy-gpu-{self._name}"
        body = {"data": {"gpus": unhealthy}}
        try:
            await self._api.patch(f"{self._unhealthy_path}/{name}", body)
        except kube_errors.NotFound:
            await self._api.create(self._unhealthy_path, {"metadata": {"name": name}, **body})
        self._unhealthy_told = unhealthy

    async def recall(self) -> None:
        """Read what an earlier run of the agent told of unhealthy cards."""
        path = f"{self._unhealthy_path}/unhealthy-gpu-{self._name}"
        try:
            self._unhealthy_told = (await self._api.get(path, _UnhealthyList)).data.get("gpus", "")
        except kube_errors.NotFound as error:
            log.debug("no list of unhealthy cards: %s", error)
        except kube_errors.KubeError as error:
            log.warning("the published list of unhealthy cards cannot be read: %s", error)
            self._unhealthy_told = "?"  # whatever it was: it is told anew

    def unhealthy_before(self) -> dict[str, str]:
        """The cards that an earlier run of the agent published as unhealthy, by uuid."""
        return {card.uuid: _UNHEALTHY_BEFORE for card in self._before() if not card.healthy}

    def foreign_before(self) -> dict[str, int]:
        """What an earlier run published of processes outside Partage: MiB by uuid."""
        used = ((card.uuid, card.foreign_memory_mib) for card in self._before())
        return {uuid: mib for uuid, mib in used if mib}

    def _before(self) -> tuple[cards.Card, ...]:
        try:
            return () if self._node is None else nodes.published(self._node) or ()
        except nodes.Unreadable as error:
            log.warning("what was published of the cards before cannot be read: %s", error)
            return ()


class _UnhealthyList(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


def described(state: node_state.NodeState, labels: Mapping[str, str], *, fence: str) -> Description:
    """What the object of a node should say; ``labels`` are those that it has now."""
    reported = registry.reported(state.node, state.dialects)
    family_labels = registry.node_labels(state.node, labels, state.settings, state.dialects)
    published = nodes.encode(state.node.cards, state.driver, partage.__version__)
    return Description(
        annotations={nodes.CARDS: published},
        labels=family_labels | {FENCE_LABEL: fence},
        capacity={name: str(amount) for name, amount in reported.items()},
    )


def _differing(intended: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str | None]:
    return {name: text for name, text in intended.items() if present.get(name) != text}


def _outdated(intended: Mapping[str, str], present: Mapping[str, str]) -> dict[str, None]:
    """Labels of an earlier run that mean nothing any more, to be taken away."""
    label = contract.UNIT_LABEL
    return {label: None} if label in present and label not in intended else {}


def _texts(node: nodes.Node) -> dict[str, str]:
    return {name: str(amount) for name, amount in node.status.capacity.items()}
