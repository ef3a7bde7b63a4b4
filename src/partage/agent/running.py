"""Running: the agent from its start to its end.

It listens at once, waits for a driver, reads the cards, its node and the pods on it, and only then
offers anything to the kubelet: from that moment containers may start. What it does afterwards are
answers to changes: of the cards' health, of the node's labels, of pods.

Nothing is kept in memory that is not somewhere else. Containers run on when the agent is killed,
with their fences, and the next agent finds them by their specifications.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

from aiohttp import web as aiohttp_web

from partage.agent import (
    auditing,
    cdi,
    comparing,
    driver,
    driver_files,
    fencing,
    gate,
    marking,
    metrics,
    node_pods,
    publishing,
    reporting,
    serving,
    settings,
    starting,
    sweeping,
    telling,
    watch,
    web,
    world,
)
from partage.core import grants
from partage.devices import health, judging
from partage.dialects import aliyun, nodes, pods
from partage.fence import roots, usage
from partage.kube import api as kube
from partage.kube import credentials
from partage.kubelet import checkpoint, folders, pod_resources
from partage.services import listening, stopping

log = logging.getLogger(__name__)

_SWEEP_S = 5.0
_SILENT_S = 60.0  # of the driver, after which people should look


async def run(chosen: settings.Settings, *, started: Callable[[str], None]) -> None:
    """Serve until a signal says to stop; ``started`` is told where it listens."""
    known = credentials.load(chosen.kubeconfig or None, chosen.context or None)
    stop = stopping.on_signals()
    async with kube.Api(known) as api:
        agent = Agent(chosen, api)
        address = listening.Address(chosen.address, chosen.port)
        async with listening.at(address, agent.application()) as url:
            started(url)
            await stopping.until(stop, agent.work())


class Agent:
    """The parts, put together."""

    def __init__(self, chosen: settings.Settings, api: kube.Api) -> None:
        self._chosen = chosen
        self._root = roots.prepare(chosen.root, reach=roots.Reach.CONTAINERS)
        self._fences = fencing.Fences(self._root, chosen.library)
        self._world = world.World(chosen.node, chosen.counting, chosen.dialects)
        self._pods = node_pods.NodePods(api, chosen.node, self._pod_changed)
        self._teller = telling.Teller(api, chosen.node, self._pods, now=_now)
        self._starter = starting.Starter(
            self._world,
            self._pods,
            fences=self._fences,
            files=_files(chosen),
            places=_places(chosen),
            begun=self._begun,
            way=gate.Way(release=self._release, tell=self._teller.about_waiting),
        )
        self._folder = folders.Folder(chosen.device_plugins)
        self._served = serving.Served(
            self._world,
            self._pods,
            self._starter,
            self._folder,
            complain=self._teller.about_resource,
        )
        self._marker = marking.Marker(api, self._pods, self._world, self._starter.started)
        self._publisher = publishing.Publisher(
            api,
            chosen.node,
            self._world,
            fence=str(self._fences.strongest.level),
            accelerator=chosen.accelerator_label,
            changed=self._node_changed,
        )
        self._auditor = auditing.Auditor(
            self._folder,
            self._served.running,
            auditing.Ways(
                ask=functools.partial(pod_resources.counted, chosen.pod_resources),
                taken=self._teller.about_taken,
                back=self._teller.about_return,
            ),
        )
        self._comparer = comparing.Comparer(
            api, chosen.node, settings.unit(chosen.counting), differ=self._teller.about_unit
        )
        self._sweeper = sweeping.Sweeper(self._starter, self._fences, self._pods)
        self._metrics = metrics.Metrics(chosen.old_metrics)
        self._watch = watch.Watch(
            self._root,
            self._world,
            self._pods,
            self._starter.started,
            policy=chosen.outside,
            ways=watch.Ways(
                ask=watch.occupancies,
                tell=self._teller.about_outside,
                count=self._metrics.found,
            ),
        )
        self._readings = driver.Readings()
        self._due = asyncio.Event()  # something about the node changed
        self._stale = asyncio.Event()  # what the driver told of the cards
        self._waits = "waiting for the NVIDIA driver"
        self._watcher: health.Watcher | None = None

    def application(self) -> aiohttp_web.Application:
        """What is served over HTTP."""
        return web.application(web.Parts(self.report, self.ready, self._metrics))

    def ready(self) -> str:
        """Why containers cannot start; empty if they can."""
        problems = self._served.problems()
        return self._waits or self._silence() or (problems[0] if problems else "")

    def _silence(self) -> str:
        silent_s = 0.0 if self._watcher is None else self._watcher.silent_s()
        return f"the driver has not answered for {silent_s:.0f} s" if silent_s > _SILENT_S else ""

    async def work(self) -> NoReturn:
        """All that goes on."""
        self._fences.say()
        self._world.driver = await driver.present()
        found = await driver.devices()
        self._world.set_devices(found)
        self._world.context_bytes = await driver.context_costs(found)
        log.info("driver %s, %d cards", self._world.driver, len(self._world.node.cards))
        async with asyncio.TaskGroup() as group:
            await self._read(group)
            before = self._publisher.sick_before()
            self._world.set_sick(before)
            with self._watching(before):
                await self._follow(group)
        raise AssertionError("tasks that never end have ended")

    async def _read(self, group: asyncio.TaskGroup) -> None:
        """Know the node and its pods before anything is offered."""
        self._waits = "reading the node and its pods"
        for each in (self._publisher.reflector, self._pods.reflector):
            group.create_task(each.run())
        for each in (self._publisher.reflector, self._pods.reflector):
            await each.synced.wait()
        await self._publisher.recall()
        for uid in {each.uid for each in self._starter.started.values()}:
            self._marker.look(uid)
        self._sweeper.sweep()
        self._waits = ""

    async def _follow(self, group: asyncio.TaskGroup) -> NoReturn:
        """Answer to changes, for ever."""
        group.create_task(self._folder.watch())
        group.create_task(self._publisher.run())
        group.create_task(self._marker.run())
        group.create_task(self._teller.run())
        group.create_task(self._auditor.run())
        if aliyun.Aliyun.name in self._chosen.dialects:
            group.create_task(self._comparer.run())
        group.create_task(self._sweep())
        group.create_task(self._watch.run())
        group.create_task(self._renew())
        while True:
            self._served.refresh(group)
            self._publisher.look()
            self._due.clear()
            await self._due.wait()

    async def _sweep(self) -> NoReturn:
        while True:
            await asyncio.sleep(_SWEEP_S)
            if self._pods.reflector.synced.is_set():
                self._sweeper.sweep()

    async def report(self) -> reporting.Report:
        """What is granted and used at this moment."""
        measured = await self._readings.now()
        used = await asyncio.to_thread(usage.everything, self._root)
        return reporting.report(
            self._chosen.node,
            self._world.node.cards,
            sick=self._world.sick,
            measured=measured,
            containers=self._containers(),
            used={each.tenant: each for each in used},
            taken_ns=time.time_ns(),
            outside=reporting.Outside(
                findings=self._watch.outside,
                unaccounted_bytes=dict(self._watch.judgement.unaccounted_bytes),
                problem=self._watch.problem,
            ),
        )

    def _containers(self) -> list[reporting.Container]:
        began = {(s.uid, s.container): s for s in self._starter.started.values()}
        living = (pod for pod in self._pods.known.values() if not pods.ended(pod))
        granted = (grant for grant in map(self._grant, living) if grant is not None)
        return [
            _known(grant, container, began.get((grant.pod.uid, container.name)))
            for grant in granted
            for container in grant.containers
        ]

    def _grant(self, pod: pods.Pod) -> grants.Grant | None:
        found = self._starter.enforced(pod)
        return found if isinstance(found, grants.Grant) else None

    @contextlib.contextmanager
    def _watching(self, before: Mapping[str, str]) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def changed(sick: Mapping[str, str]) -> None:
            loop.call_soon_threadsafe(self._judged, sick)

        quiet_s = self._chosen.quiet_s
        patience = None if quiet_s is None else judging.Patience(quiet_s=quiet_s)
        with health.Watcher(changed, patience=patience, before=before) as self._watcher:
            yield

    def _judged(self, sick: Mapping[str, str]) -> None:
        before = self._world.sick
        self._world.set_sick(sick)
        self._teller.about_cards(before, self._world, self._grant)
        self._look()
        self._stale.set()

    async def _renew(self) -> NoReturn:
        """Ask the driver again when cards fell sick or got well; nothing waits for its answer."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            self._world.set_devices(await driver.devices())
            self._look()

    def _look(self) -> None:
        self._due.set()

    def _node_changed(self, node: nodes.Node) -> None:
        self._auditor.compare(node.status.allocatable)
        self._look()

    def _pod_changed(self, uid: str, pod: pods.Pod | None) -> None:
        if pod is not None:
            self._marker.look(uid)
        else:
            self._sweeper.release(uid)

    def _release(self, uid: str) -> None:
        self._sweeper.release(uid)

    def _begun(self, grant: grants.Grant, began: cdi.Started) -> None:
        self._marker.look(grant.pod.uid)


def _known(
    grant: grants.Grant, container: grants.ContainerGrant, began: cdi.Started | None
) -> reporting.Container:
    fence = began.fence if began is not None else container.fence
    return reporting.Container(
        grant=grant,
        container=container,
        fence="" if fence == fencing.NONE else fence,
        tenant=began.tenant if began is not None else "",
    )


def _places(chosen: settings.Settings) -> starting.Places:
    return starting.Places(
        cdi=chosen.cdi,
        checkpoint=chosen.device_plugins / checkpoint.NAME,
        pod_resources=chosen.pod_resources,
    )


def _files(chosen: settings.Settings) -> driver_files.DriverFiles | None:
    """None: NVIDIA's runtime brings the driver's files."""
    if chosen.driver_files == "runtime":
        return None
    return driver_files.DriverFiles(chosen.driver_specs, optional=chosen.driver_files == "auto")


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
