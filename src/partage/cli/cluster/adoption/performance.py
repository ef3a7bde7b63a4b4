"""Performing a take-over: step by step, a check after each, to the end or back to the beginning.

What was done before is not remembered anywhere: each step looks, and does what is left to do. So it
does not matter where the one before was stopped, nor whether by a person, a check or a kill.

A check that fails stops everything there. A node that was being moved stays closed to new pods
until it is moved or given back: nothing can be given away twice on it.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Collection

import msgspec

from partage.agent.cluster import node_publication
from partage.cli.cluster import cluster_snapshot, mirror_snapshot
from partage.cli.cluster.adoption import (
    adoptions,
    decisions_check,
    forms,
    node_checks,
    record,
    writing,
)
from partage.cli.cluster.adoption.plans import places
from partage.cli.cluster.facts import forms as doctors_forms
from partage.core import errors
from partage.dialects import contract, nodes, pods
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler.verbs import gpushare_inspect

_Check = Callable[[], Awaitable[str]]

# What an agent writes on its node, and leaves there when it is gone.
_TOLD_LABELS = (
    node_publication.FENCE_LABEL,
    contract.UNIT_LABEL,
    *(f"nvidia.com/gpu.{word}" for word in ("count", "memory", "product")),
)
_NODES_LEFT = "nodes are left"
_OPEN, _CLOSED = "was-open", "was-cordoned"  # what a node is marked with while it is moved


class Stopped(errors.PartageError):
    """A check failed; nothing after it was done."""

    code = "adoption-stopped"


class Outcome(enum.StrEnum):
    """What became of a step."""

    DONE = "done"
    LEFT = "left"  # for another time


class Done(msgspec.Struct, frozen=True):
    """One step, and what became of it."""

    step: str
    outcome: Outcome
    why: str = ""


class Surroundings(msgspec.Struct, frozen=True):
    """What tests have in another way: time, and an extender that answers."""

    now_s: Callable[[], float]
    pause: writing.Pause
    patience_s: float  # with each thing that is waited for
    ask: Callable[[kube.Api, str], Awaitable[bytes]]  # the extender of a Deployment, by its path


class Performance:
    """Performs the steps of one take-over."""

    def __init__(
        self,
        api: kube.Api,
        adoption: adoptions.Adoption,
        around: Surroundings,
        tell: Callable[[str], None],
    ) -> None:
        self.done: list[Done] = []
        self._api = api
        self._adoption = adoption
        self._around = around
        self._tell = tell
        self._writer = writing.Writer(api, around.pause)

    async def forward(self, only: Collection[str] = ()) -> None:
        """Take over; of nodes all, or ``only`` some. Those that are not ready are left."""
        await record.keep(self._api, self._adoption)
        steps = self._adoption.steps
        for number, step in enumerate(steps, start=1):
            name = f"step {number} of {len(steps)}: {step.name}"
            if isinstance(step, adoptions.NodeStep):
                if only and step.place.name not in only:
                    self._leave(step.name, "it was not named with --node", name)
                else:
                    await self._node_step(step, name, self._node_forward)
            elif self._has_left and step.last:
                self._leave(step.name, _NODES_LEFT, name)
            else:
                await self._telling(step, self._objects(step, step.forward, name, step.does))
                await self._agreed(step)
                self._finish(step.name)

    async def backward(self) -> None:
        """Give everything back, in the reverse order; then forget."""
        steps = self._adoption.steps
        for number, step in reversed(list(enumerate(steps, start=1))):
            name = f"step {number} of {len(steps)} back: {step.name}"
            if isinstance(step, adoptions.NodeStep):
                await self._node_step(step, name, self._node_backward)
            elif self._has_left and not step.last:
                self._leave(step.name, _NODES_LEFT, name)
            else:
                await self._telling(step, self._objects(step, step.backward, name, step.undone))
                self._finish(step.name)
        if not self._has_left:
            await record.forget(self._api, self._adoption)

    # ---------------------------------------------------------------------------- objects

    async def _objects(
        self, step: adoptions.Step, changes: tuple[adoptions.Change, ...], name: str, does: str
    ) -> None:
        self._tell(f"{name}: {does}")
        for change in changes:
            await self._writer.change(change)
        for path in step.rollouts:
            await self._until(step.name, lambda path=path: self._rolled_out(path))  # type: ignore[misc]

    async def _rolled_out(self, path: str) -> str:
        read = await self._writer.patiently(lambda: self._api.get(path, forms.Deployment))
        return read.waiting and f"{path.rpartition('/')[2]}: {read.waiting}"

    async def _agreed(self, step: adoptions.Step) -> None:
        if step.decisions:
            await self._until(step.name, lambda: self._disagreement(step.decisions))

    async def _disagreement(self, deployment: str) -> str:
        """What the extender that runs says, beside what is computed from the cluster here."""
        try:
            answer = await self._around.ask(self._api, deployment)
            mirror = await mirror_snapshot.read(cluster_snapshot.Cluster(self._api, ""), pods.Pod)
        except (kube_errors.ApiError, *writing.PASSING) as error:
            return f"it cannot be asked through the API server: {error}"
        expected = gpushare_inspect.GpushareInspect(mirror).inspect()
        return decisions_check.disagreement(answer, expected)

    # ------------------------------------------------------------------------------ nodes

    async def _node_step(
        self,
        step: adoptions.NodeStep,
        name: str,
        work: Callable[[adoptions.NodeStep, str], Awaitable[None]],
    ) -> None:
        try:
            node = await self._writer.node(step.place.name)
        except kube_errors.NotFound:
            self._tell(f"{name}: it is not in the cluster any more")
            self._finish(step.name)
            return
        untold = places.untold(step.place, len(await self._tenants(step.place)))
        if not node.ready:
            self._leave(step.name, "its kubelet is not ready", name)
        elif untold and not await self._ready(step.place, self._adoption.agent):
            self._leave(step.name, untold, name)
        else:
            await self._telling(step, work(step, name))
            self._finish(step.name)

    async def _node_forward(self, step: adoptions.NodeStep, name: str) -> None:
        place = step.place
        if await self._is_finished(step):
            return
        self._tell(f"{name}: the agent takes the plugin's place")
        await self._close(place)
        await self._until(step.name, lambda: self._unstarted(place))
        before = {pod.metadata.uid: pod for pod in await self._tenants(place)}
        if step.labels:
            await self._by_label(step)
        else:
            await self._by_pod(step.name, place, marked=True)
        await self._until(step.name, lambda: self._moved(place))
        self._require(step.name, node_checks.ran_on(before, await self._writer.pods(place.name)))
        await self._open(place)

    async def _node_backward(self, step: adoptions.NodeStep, name: str) -> None:
        place = step.place
        self._tell(f"{name}: the plugin takes the agent's place")
        if not await self._is_plugins(step):
            await self._close(place)
            tenants = await self._tenants(place)
            self._require(step.name, node_checks.strangers(self._adoption, place, tenants))
            await self._until(step.name, lambda: self._unstarted(place))
        if step.labels:
            await self._by_label_back(step)
        else:
            await self._by_pod(step.name, place, marked=False)
        await self._until(step.name, lambda: self._restored(place))
        labels = {name: None for name in _TOLD_LABELS if name not in places.labels(place)}
        notes: dict[str, str | None] = {nodes.CARDS: None, nodes.AWAY: None}
        await self._writer.patch_node(place.name, labels=labels, annotations=notes)
        await self._open(place)

    async def _is_finished(self, step: adoptions.NodeStep) -> bool:
        """Whether nothing is left to do for a node that was moved before."""
        node = await self._writer.node(step.place.name)
        if adoptions.ADOPTING in node.metadata.annotations:
            return False
        present = await self._plugins(step.place, self._adoption.agent)
        is_agents = all(map(_is_marked, present)) if not step.labels else _is_enabled(node)
        served = is_agents and any(pod.ready for pod in present)
        return served and not await self._moved(step.place)

    async def _close(self, place: adoptions.Place) -> None:
        """Nothing new comes while it has neither plugin for sure."""
        node = await self._writer.node(place.name)
        before = _CLOSED if node.spec.unschedulable else _OPEN
        why = {adoptions.ADOPTING: node.metadata.annotations.get(adoptions.ADOPTING, before)}
        await self._writer.patch_node(place.name, annotations=why, unschedulable=True)

    async def _open(self, place: adoptions.Place) -> None:
        """As it was before it was closed, if it was closed here."""
        node = await self._writer.node(place.name)
        before = node.metadata.annotations.get(adoptions.ADOPTING)
        if before is not None:
            closed = before == _CLOSED
            change: dict[str, str | None] = {adoptions.ADOPTING: None}
            await self._writer.patch_node(place.name, annotations=change, unschedulable=closed)

    async def _by_pod(self, step: str, place: adoptions.Place, *, marked: bool) -> None:
        """Pods of the DaemonSet that are of the other side go; its controller makes others."""
        plugin = self._adoption.plugin

        async def replaced() -> str:
            present = await self._plugins(place, plugin)
            others = [pod for pod in present if _is_marked(pod) is not marked]
            for pod in others:
                if pod.metadata.deletion_timestamp is None:
                    await self._writer.delete_pod(pod)
            if others:
                return f"{others[0].label} ends"
            return "" if any(pod.ready for pod in present) else f"no pod of {plugin.name} is ready"

        await self._until(step, replaced)

    async def _by_label(self, step: adoptions.NodeStep) -> None:
        """First the plugin goes, then the agent comes."""
        place, adoption = step.place, self._adoption
        if not await self._ready(place, adoption.agent):
            await self._writer.patch_node(place.name, labels=step.labels)
        await self._until(step.name, lambda: self._gone(place, adoption.plugin))
        enabled = {adoptions.AGENT: adoptions.ENABLED}
        await self._writer.patch_node(place.name, labels=enabled)
        await self._until(step.name, lambda: self._serving(place, adoption.agent))

    async def _by_label_back(self, step: adoptions.NodeStep) -> None:
        place, adoption = step.place, self._adoption
        if not await self._is_plugins(step):
            neither = {adoptions.AGENT: adoptions.NEITHER}
            await self._writer.patch_node(place.name, labels=neither)
            await self._until(step.name, lambda: self._gone(place, adoption.agent))
        await self._writer.patch_node(place.name, labels=place.labels)
        await self._until(step.name, lambda: self._serving(place, adoption.plugin))

    async def _is_plugins(self, step: adoptions.NodeStep) -> bool:
        """Whether the node has nothing of Partage's."""
        present = await self._plugins(step.place, self._adoption.agent)
        if step.labels:
            node = await self._writer.node(step.place.name)
            labels = node.metadata.labels
            same = all(labels.get(k) == value for k, value in step.place.labels.items())
            return same and not present
        return not any(map(_is_marked, present))

    async def _plugins(
        self, place: adoptions.Place, workload: adoptions.Workload
    ) -> list[forms.Pod]:
        read = await self._writer.pods(place.name)
        by = ("DaemonSet", workload.name, workload.namespace)
        return [pod for pod in read if pod.made_by(*by)]

    async def _ready(self, place: adoptions.Place, workload: adoptions.Workload) -> bool:
        return any(pod.ready for pod in await self._plugins(place, workload))

    async def _gone(self, place: adoptions.Place, workload: adoptions.Workload) -> str:
        left = await self._plugins(place, workload)
        return f"{left[0].label} ends" if left else ""

    async def _serving(self, place: adoptions.Place, workload: adoptions.Workload) -> str:
        served = await self._ready(place, workload)
        return "" if served else f"no pod of {workload.name} is ready there"

    async def _tenants(self, place: adoptions.Place) -> list[forms.Pod]:
        return writing.tenants(await self._writer.pods(place.name))

    async def _unstarted(self, place: adoptions.Place) -> str:
        return node_checks.unstarted(await self._tenants(place))

    async def _moved(self, place: adoptions.Place) -> str:
        node = await self._writer.node(place.name)
        tenants = await self._tenants(place)
        return node_checks.amounts(self._adoption, place, node) or node_checks.read_back(
            self._adoption, place, node, tenants
        )

    async def _restored(self, place: adoptions.Place) -> str:
        return node_checks.amounts_before(place, await self._writer.node(place.name))

    # ----------------------------------------------------------------------------- telling

    async def _until(self, step: str, check: _Check) -> None:
        """Wait until a check has nothing to say; in the end stop with what it says."""
        deadline_s = self._around.now_s() + self._around.patience_s
        said = ""
        while waiting := await check():
            if waiting != said:
                self._tell(f"  waiting: {waiting}")
            said = waiting
            if self._around.now_s() > deadline_s:
                raise self._stopped(step, waiting)
            await self._around.pause()

    async def _telling(
        self, step: adoptions.Step | adoptions.NodeStep, work: Awaitable[None]
    ) -> None:
        """Do it; what the API server refuses, or does not answer for long, stops it, too."""
        try:
            await work
        except kube_errors.KubeError as error:
            raise self._stopped(step.name, str(error)) from error

    def _require(self, step: str, problem: str) -> None:
        if problem:
            raise self._stopped(step, problem)

    def _stopped(self, step: str, problem: str) -> Stopped:
        system = self._adoption.system
        closed = ""
        if step.startswith("node "):
            closed = f"{step} stays closed to new pods; "
        return Stopped(
            f"{step}: {problem}",
            instead=f"{closed}put it right and run 'partage adopt {system}' again, which goes on "
            f"here; or go back with 'partage adopt {system} --undo'",
        )

    @property
    def _has_left(self) -> bool:
        return any(done.outcome is Outcome.LEFT for done in self.done)

    def _leave(self, step: str, why: str, name: str) -> None:
        self._tell(f"{name}: left: {why}")
        self.done.append(Done(step, Outcome.LEFT, why))

    def _finish(self, step: str) -> None:
        self.done.append(Done(step, Outcome.DONE))


def _is_enabled(node: doctors_forms.Node) -> bool:
    return node.metadata.labels.get(adoptions.AGENT) == adoptions.ENABLED


def _is_marked(pod: forms.Pod) -> bool:
    return adoptions.MARK in pod.metadata.annotations
