"""The agent as a service, from its start to its end.

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

from partage.agent import foreign_use, node_driver, node_state, reports, settings, watch, web
from partage.agent.cluster import (
    agent_events,
    mode_changes,
    node_publication,
    pod_marks,
    presence,
    unit_comparison,
    vendor_records,
)
from partage.agent.containers import (
    cdi,
    claim_check,
    cleanup,
    container_fence,
    container_start,
    driver_files,
    gate,
    time_limits,
)
from partage.agent.metrics import current_names
from partage.agent.pods import node_pods
from partage.agent.resources import registration_audit, resource_plugins
from partage.core import errors, grants
from partage.devices import health, health_rules
from partage.dialects import bound_pods, nodes, pods, registry
from partage.fence import usage
from partage.fence.store import roots
from partage.kube import api as kube
from partage.kube.auth import credentials
from partage.kubelet import checkpoint, plugin_folder, pod_resources
from partage.services import lifetime, listener

log = logging.getLogger(__name__)

_SWEEP_S = 5.0
_SILENT_S = 60.0  # of the driver, after which people should look


async def run(chosen: settings.Settings, *, started: Callable[[str], None]) -> None:
    """Serve until a signal says to stop; ``started`` is told where it listens."""
    login = credentials.load(chosen.kubeconfig or None, chosen.context or None)
    stop = lifetime.on_signals()
    async with kube.Api(login) as api:
        agent = Agent(chosen, api)
        address = listener.Address(chosen.address, chosen.port)
        async with listener.at(address, agent.application()) as url:
            started(url)
            await lifetime.until(stop, agent.work(), leaving=agent.leave)


class Agent:
    """The parts, put together."""

    def __init__(self, chosen: settings.Settings, api: kube.Api) -> None:
        self._chosen = chosen
        self._root = roots.prepare(chosen.root, reach=roots.Reach.CONTAINERS)
        self._fences = container_fence.Fences(self._root, chosen.library)
        self._state = node_state.NodeState(chosen.node, chosen.counting, chosen.dialects)
        self._pods = node_pods.NodePods(api, chosen.node, self._pod_changed)
        self._teller = agent_events.Teller(api, chosen.node, self._pods, now=_now)
        self._starter = container_start.Starter(
            self._state,
            self._pods,
            fences=self._fences,
            files=_files(chosen),
            paths=_paths(chosen),
            begun=self._begun,
            callbacks=gate.Callbacks(release=self._release, tell=self._teller.about_waiting),
            claims=claim_check.ClaimCheck(api, self._state),
        )
        self._time = time_limits.TimeLimits(
            self._root,
            self._state,
            self._pods,
            self._starter.started,
            enforced=self._starter.enforced,
            classes=chosen.compute_classes,
            tell=self._teller.about_compute,
        )
        self._modes = mode_changes.ModeChanges(
            self._pods, outdated=self._starter.outdated, tell=self._teller.about_mode
        )
        self._folder = plugin_folder.Folder(chosen.device_plugins)
        self._served = resource_plugins.ResourcePlugins(
            self._state,
            self._pods,
            self._starter,
            self._folder,
            complain=self._teller.about_resource,
        )
        self._marker = pod_marks.Marker(api, self._pods, self._state, self._starter.started)
        self._vendor_records = vendor_records.VendorRecords(
            api, self._pods, self._state, chosen.device_plugins / checkpoint.NAME
        )
        self._publisher = node_publication.Publisher(
            api,
            chosen.node,
            self._state,
            fence=str(self._fences.strongest.level),
            changed=self._node_changed,
        )
        self._presence = presence.Presence(
            api,
            chosen.node,
            presence.Callbacks(
                problems=self._served.problems,
                coming=self._coming,
                end=self._served.end,
                offers=self._offers,
                marked=self._marked,
                now=_now,
            ),
        )
        self._auditor = registration_audit.Auditor(
            self._folder,
            self._served.running,
            registration_audit.Callbacks(
                ask=functools.partial(pod_resources.counted, chosen.pod_resources),
                taken=self._teller.about_taken,
                back=self._teller.about_return,
            ),
        )
        self._comparer = unit_comparison.Comparer(
            api,
            chosen.node,
            chosen.counting,
            registry.unit_resources(chosen.dialects),
            differ=self._teller.about_unit,
        )
        self._sweeper = cleanup.Sweeper(self._starter, self._fences, self._pods)
        self._metrics = current_names.Metrics(chosen.old_metrics)
        self._foreign = foreign_use.ForeignUse(self._foreign_changed)
        self._watch = watch.Watch(
            self._root,
            self._state,
            self._pods,
            self._starter.started,
            policy=chosen.outside,
            callbacks=watch.Callbacks(
                ask=watch.occupancies,
                tell=self._teller.about_outside,
                count=self._metrics.count,
                notice=self._foreign.notice,
            ),
        )
        self._readings = node_driver.Readings()
        self._node = nodes.Node()  # as it was last seen
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

    async def leave(self) -> None:
        """Before the end: nothing new is placed here, and what was bound before is served."""
        await self._presence.leave()

    async def work(self) -> NoReturn:
        """All that goes on."""
        self._fences.say()
        self._state.driver = await node_driver.present()
        devices = await node_driver.devices()
        self._state.set_devices(devices)
        self._state.context_bytes = await node_driver.context_costs(devices)
        log.info("driver %s, %d cards", self._state.driver, len(self._state.node.cards))
        async with asyncio.TaskGroup() as group:
            await self._read(group)
            before = self._publisher.unhealthy_before()
            self._state.set_unhealthy(before)
            self._recall_foreign(self._publisher.foreign_before())
            with self._watching(before):
                await self._follow(group)
        raise AssertionError("tasks that never end have ended")

    async def _read(self, group: asyncio.TaskGroup) -> None:
        """Know the node and its pods before anything is offered."""
        self._waits = "reading the node and its pods"
        reflectors = (self._publisher.reflector, self._pods.reflector)
        for reflector in reflectors:
            group.create_task(reflector.run())
        for reflector in reflectors:
            await reflector.synced.wait()
        await self._publisher.recall()
        for uid in {started.uid for started in self._starter.started.values()}:
            self._marker.look(uid)
        self._sweeper.sweep()
        self._time.look()
        self._waits = ""

    async def _follow(self, group: asyncio.TaskGroup) -> NoReturn:
        """Answer to changes, for ever."""
        group.create_task(self._folder.watch())
        group.create_task(self._publisher.run())
        group.create_task(self._marker.run())
        group.create_task(self._vendor_records.run())
        group.create_task(self._teller.run())
        group.create_task(self._auditor.run())
        if registry.unit_resources(self._chosen.dialects):
            group.create_task(self._comparer.run())
        group.create_task(self._sweep())
        group.create_task(self._watch.run())
        group.create_task(self._time.run())
        group.create_task(self._renew())
        group.create_task(self._presence.run())
        while True:
            self._served.refresh(group)
            self._publisher.look()
            self._due.clear()
            await self._due.wait()

    async def _sweep(self) -> NoReturn:
        while True:
            await asyncio.sleep(_SWEEP_S)
            if self._pods.reflector.synced.is_set():
                before = self._starter.started.keys() | ()
                self._sweeper.sweep()
                if self._starter.started.keys() != before:
                    self._time.look()

    async def report(self) -> reports.Report:
        """What is granted and used at this moment."""
        measured = await self._readings.now()
        usages = await asyncio.to_thread(usage.everything, self._root)
        return reports.report(
            self._chosen.node,
            self._state.node.cards,
            unhealthy=self._state.unhealthy,
            measured=measured,
            containers=self._containers(),
            used={used.tenant: used for used in usages},
            taken_ns=time.time_ns(),
            cordons=self._state.node.cordons,
            outside=reports.Outside(
                findings=self._watch.outside,
                unaccounted_bytes=dict(self._watch.judgement.unaccounted_bytes),
                problem=self._watch.problem,
            ),
        )

    def _containers(self) -> list[reports.Container]:
        began = {(s.uid, s.container): s for s in self._starter.started.values()}
        living = (pod for pod in self._pods.by_uid.values() if not pods.ended(pod))
        granted = (grant for grant in map(self._grant, living) if grant is not None)
        return [
            _container_facts(grant, container, began.get((grant.pod.uid, container.name)))
            for grant in granted
            for container in grant.containers
        ]

    async def _coming(self) -> list[str]:
        """Pods of this node to which the kubelet has not given their devices yet."""
        path = self._chosen.device_plugins / checkpoint.NAME
        try:
            holdings = await asyncio.to_thread(checkpoint.holdings, path)
        except errors.PartageError as error:
            log.warning("%s", error)
            return []
        given = {holding.pod_uid for holding in holdings}
        return [
            f"{pod.metadata.namespace}/{pod.metadata.name}"
            for uid, pod in self._pods.by_uid.items()
            if uid not in given and bound_pods.asks(pod) and not pods.ended(pod)
        ]

    def _offers(self, resource: str) -> bool:
        return self._node.offers(resource)

    def _marked(self) -> bool:
        return nodes.AWAY in self._node.metadata.annotations

    def _grant(self, pod: pods.Pod) -> grants.Grant | None:
        grant = self._starter.enforced(pod)
        return grant if isinstance(grant, grants.Grant) else None

    @contextlib.contextmanager
    def _watching(self, before: Mapping[str, str]) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def changed(unhealthy: Mapping[str, str]) -> None:
            loop.call_soon_threadsafe(self._judged, unhealthy)

        quiet_s = self._chosen.quiet_s
        patience = None if quiet_s is None else health_rules.Patience(quiet_s=quiet_s)
        with health.Watcher(changed, patience=patience, before=before) as self._watcher:
            yield

    def _judged(self, unhealthy: Mapping[str, str]) -> None:
        before = self._state.unhealthy
        self._state.set_unhealthy(unhealthy)
        self._teller.about_cards(before, self._state, self._grant)
        self._look()
        self._stale.set()

    def _recall_foreign(self, foreign_mib: Mapping[str, int]) -> None:
        self._foreign.recall(foreign_mib)
        self._state.set_foreign(foreign_mib)

    def _foreign_changed(self, foreign_mib: Mapping[str, int]) -> None:
        self._state.set_foreign(foreign_mib)
        self._publisher.look()

    async def _renew(self) -> NoReturn:
        """Ask the driver again when the health of a card changed; nothing waits for its answer."""
        while True:
            await self._stale.wait()
            self._stale.clear()
            self._state.set_devices(await node_driver.devices())
            self._look()

    def _look(self) -> None:
        self._due.set()

    def _node_changed(self, node: nodes.Node) -> None:
        self._node = node
        self._auditor.compare(node.status.allocatable)
        self._modes.look(node.metadata.labels)
        self._time.look()
        self._look()

    def _pod_changed(self, uid: str, pod: pods.Pod | None) -> None:
        if pod is not None:
            self._marker.look(uid)
        else:
            self._sweeper.release(uid)
        self._time.look()
        if self._state.cordoned.cards:
            self._look()  # what a pod gives back of a cordoned card is not offered again

    def _release(self, uid: str) -> None:
        self._sweeper.release(uid)
        self._time.look()

    async def _begun(self, grant: grants.Grant, began: cdi.Started) -> None:
        if began.tenant:
            await self._time.start(began.tenant)
        self._marker.look(grant.pod.uid)


def _container_facts(
    grant: grants.Grant, container: grants.ContainerGrant, began: cdi.Started | None
) -> reports.Container:
    fence = began.fence if began is not None else container.fence
    return reports.Container(
        grant=grant,
        container=container,
        fence="" if fence == container_fence.NONE else fence,
        tenant=began.tenant if began is not None else "",
    )


def _paths(chosen: settings.Settings) -> container_start.Paths:
    return container_start.Paths(
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
