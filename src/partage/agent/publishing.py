"""Publishing: what the cluster is told of this node's cards.

An annotation has all of it, for the scheduler. Labels have what people select nodes by, under the
names of NVIDIA's GPU feature discovery, and are left to it where it runs. A number of cards goes
into the node's status for gpushare. And a ConfigMap lists sick cards for those who read only that.

The node is watched, and whatever differs from what should be there is written; so it is right again
after somebody edited it, and nothing is written while all is well, because every change of a node
makes kube-scheduler look at its waiting pods again.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn

import msgspec

from partage.agent import settings, world
from partage.core import cards
from partage.dialects import aliyun, nodes, nvidia, registry
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.kube import reflector

log = logging.getLogger(__name__)

FENCE_LABEL = "partage.dev/fence"
UNIT_LABEL = "partage.dev/memory-unit"  # of aliyun.com/gpu-mem, where that is offered
ACCELERATOR = ("sched.tensorstack.dev/accelerator", "nvidia-gpu")
_DISCOVERY = "nvidia.com/gfd.timestamp"
_LONGEST_LABEL = 63
_SICK_BEFORE = "it was sick before the agent was started, and nothing says that it is well"
_AGAIN_S = 5.0
_MOMENT_S = 0.05


class Wanted(msgspec.Struct, frozen=True):
    """What a node should say."""

    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    capacity: dict[str, str] = {}


class Publisher:
    """Keeps this node's object in the cluster as it should be."""

    def __init__(
        self,
        api: kube.Api,
        name: str,
        facts: world.World,
        *,
        fence: str,
        accelerator: bool,
        changed: Callable[[nodes.Node], None],
    ) -> None:
        self._api = api
        self._path = f"/api/v1/nodes/{name}"
        self._sick_path = "/api/v1/namespaces/kube-system/configmaps"
        self._name = name
        self._world = facts
        self._fence = fence
        self._accelerator = accelerator
        self._changed = changed  # labels may mean other modes now; and the kubelet has its say
        self._there: nodes.Node | None = None
        self._sick_told: str | None = None
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
        self._there = node
        self._world.set_labels(node.metadata.labels)
        self._changed(node)
        self._due.set()

    def drop(self, key: str) -> None:
        self._there = None

    def keys(self) -> Collection[str]:
        return [] if self._there is None else [self._there.metadata.name]

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
        there = self._there
        if there is None or not self._world.node.cards:
            return
        wanted = self._wanted(there)
        meta = {
            "annotations": _differing(wanted.annotations, there.metadata.annotations),
            "labels": _differing(wanted.labels, there.metadata.labels)
            | _outdated(wanted.labels, there.metadata.labels),
        }
        if any(meta.values()):
            await self._api.patch(self._path, {"metadata": meta})
        capacity = _differing(wanted.capacity, _texts(there))
        if capacity:
            status = {"capacity": capacity, "allocatable": capacity}
            await self._api.patch(f"{self._path}/status", {"status": status})
        await self._tell_sick()

    def _wanted(self, there: nodes.Node) -> Wanted:
        node = self._world.node
        found = _DISCOVERY in there.metadata.labels
        wanted = described(node, driver=self._world.driver, discovery=found)
        labels = wanted.labels | {FENCE_LABEL: self._fence}
        if aliyun.Aliyun.name in self._world.dialects:
            labels[UNIT_LABEL] = settings.unit(self._world.settings)
        if self._accelerator:
            labels[ACCELERATOR[0]] = ACCELERATOR[1]
        reported = registry.reported(node, self._world.dialects)
        capacity = {name: str(amount) for name, amount in reported.items()}
        return Wanted(wanted.annotations, labels, capacity)

    async def _tell_sick(self) -> None:
        """Only if it was told before, or there is something to tell."""
        sick = ",".join(str(card.index) for card in self._world.node.cards if not card.healthy)
        if sick == self._sick_told or not (sick or self._sick_told is not None):
            return
        name = f"unhealthy-gpu-{self._name}"
        body = {"data": {"gpus": sick}}
        try:
            await self._api.patch(f"{self._sick_path}/{name}", body)
        except kube_errors.NotFound:
            await self._api.create(self._sick_path, {"metadata": {"name": name}, **body})
        self._sick_told = sick

    async def recall(self) -> None:
        """Read what an earlier run of the agent told of sick cards."""
        path = f"{self._sick_path}/unhealthy-gpu-{self._name}"
        try:
            self._sick_told = (await self._api.get(path, _SickList)).data.get("gpus", "")
        except kube_errors.NotFound as error:
            log.debug("no list of sick cards: %s", error)
        except kube_errors.KubeError as error:
            log.warning("what was told of sick cards is not known: %s", error)
            self._sick_told = "?"  # whatever it was: it is told anew

    def sick_before(self) -> dict[str, str]:
        """The cards that an earlier run of the agent published as sick, by uuid."""
        try:
            found = () if self._there is None else nodes.published(self._there) or ()
        except nodes.Unreadable as error:
            log.warning("which cards were sick is not known: %s", error)
            return {}
        return {card.uuid: _SICK_BEFORE for card in found if not card.healthy}


class _SickList(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


def described(node: cards.Node, *, driver: str = "", discovery: bool) -> Wanted:
    """What is said of a node's cards; with ``discovery``, NVIDIA's own labels are left alone."""
    annotations = {nodes.CARDS: nodes.encode(node.cards, driver)}
    if discovery or not node.cards:
        return Wanted(annotations)
    # GPU feature discovery has one model and one memory for a node, those of its first card.
    first = node.cards[0]
    labels = {
        nvidia.COUNT: str(len(node.cards)),
        nvidia.MEMORY_MIB: str(first.memory_mib),
        nvidia.PRODUCT: _label(first.model),
    }
    return Wanted(annotations, {name: text for name, text in labels.items() if text})


def _label(text: str) -> str:
    """As GPU feature discovery writes models: blanks become dashes, what no label may have goes."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "", re.sub(r"\s+", "-", text.strip()))
    return plain[:_LONGEST_LABEL].strip("._-")


def _differing(wanted: dict[str, str], there: object) -> dict[str, str | None]:
    have = there if isinstance(there, dict) else {}
    return {name: text for name, text in wanted.items() if have.get(name) != text}


def _outdated(wanted: Mapping[str, str], there: Mapping[str, str]) -> dict[str, None]:
    """Labels of an earlier run that mean nothing any more, to be taken away."""
    return {UNIT_LABEL: None} if UNIT_LABEL in there and UNIT_LABEL not in wanted else {}


def _texts(node: nodes.Node) -> dict[str, str]:
    return {name: str(amount) for name, amount in node.status.capacity.items()}
