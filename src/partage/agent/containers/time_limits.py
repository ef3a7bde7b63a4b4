"""Time limits: the time of every card is divided again when tenants come and go, or words change.

What is there is read anew each time: the containers that were started, the grants of their pods,
the node's labels, what the files of the fences say. So nothing is kept, and an agent that was
killed computes the same again. Only limits that differ are written; processes that run see them at
their next launch.

A container that starts waits until its own limits are written. What cannot be written for another
one is told in the log, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NoReturn

import msgspec

from partage.agent import node_state
from partage.agent.containers import card_time, cdi, gate
from partage.agent.pods import node_pods
from partage.core import demands, errors, grants
from partage.dialects import compute_policies, pods, registry
from partage.fence.store import layout, limits, roots, tenants

log = logging.getLogger(__name__)

_AGAIN_S = 5.0  # after what could not be written
_NOTHING_SAID = compute_policies.OfContainer()


class Request(msgspec.Struct, frozen=True):
    """What one tenant asks of the time of its cards."""

    tenant: str
    container: grants.ContainerGrant
    grant: grants.Grant
    rule: card_time.ClassRule
    said: compute_policies.OfContainer


class TimeLimits:
    """Keeps the limits of time of all containers of the node."""

    def __init__(
        self,
        root: roots.Root,
        state: node_state.NodeState,
        pods_of_node: node_pods.NodePods,
        started: Mapping[str, cdi.Started],
        *,
        enforced: Callable[[pods.Pod], grants.Grant | grants.Damage | None],
        classes: Mapping[str, card_time.ClassRule],
        tell: Callable[[pods.Pod, str], None],
    ) -> None:
        self._root = root
        self._state = state
        self._pods = pods_of_node
        self._started = started
        self._enforced = enforced
        self._classes = classes  # by name of the PriorityClass
        self._tell = tell  # the owner of a pod, what makes no sense in it
        self._due = asyncio.Event()
        self._turn = asyncio.Lock()  # an older look must not write after a newer one
        self._told: set[tuple[str, str]] = set()
        self._problems: Mapping[str, str] = {}  # by tenant, of the last time

    def look(self) -> None:
        """Something changed that may concern time."""
        self._due.set()

    async def run(self) -> NoReturn:
        """For ever: divide again when something changed."""
        while True:
            await self._due.wait()
            self._due.clear()
            if await self._failed():
                await asyncio.sleep(_AGAIN_S)
                self._due.set()

    async def _failed(self) -> bool:
        """Divide; whether that has to be done again. It must not end the agent."""
        try:
            return bool(await self.divide())
        except (OSError, errors.PartageError) as error:
            log.warning("the time of cards cannot be divided: %s", error)
            return True

    async def start(self, tenant: str) -> None:
        """A container is about to start: its limits, and those of its neighbours, are written."""
        failed = await self.divide(starting=tenant)
        if failed:
            self._due.set()
        if tenant in failed:
            raise errors.FenceError(
                f"the time of the container's cards cannot be limited ({failed[tenant]})",
                instead="see the agent's log; the kubelet tries again by itself",
            )

    async def divide(self, *, starting: str = "") -> Mapping[str, str]:
        """Divide the time of all cards once; which tenants could not be limited, and why."""
        async with self._turn:
            requests = list(self._requests(starting))
            node = compute_policies.of_node(self._state.labels)
            failed = await asyncio.to_thread(written, self._root, requests, node)
            before, self._problems = self._problems, failed
        for name, problem in failed.items():
            if before.get(name) != problem:
                log.warning("the time of tenant %s cannot be limited: %s", name, problem)
        return failed

    def _requests(self, starting: str) -> Iterator[Request]:
        """Of the containers that are there: started, and not finished for good.

        Of one that is about to start, what is known may be of its last run. Containers that share
        an ElasticGPU are one tenant, and one of them speaks for all.
        """
        self._told &= {(uid, text) for uid, text in self._told if uid in self._pods.by_uid}
        present = (s for s in self._started.values() if s.tenant == starting or self._goes_on(s))
        for started in {s.tenant: s for s in present if s.tenant}.values():
            pod = self._pods.by_uid.get(started.uid)
            grant = self._grant(pod, started)
            container = _named(grant, started.container)
            if grant is not None and container is not None:
                yield self._request(started.tenant, pod, grant, container)

    def _goes_on(self, started: cdi.Started) -> bool:
        pod = self._pods.by_uid.get(started.uid)
        return pod is None or not (pods.ended(pod) or finished(pod, started.container))

    def _grant(self, pod: pods.Pod | None, started: cdi.Started) -> grants.Grant | None:
        """As it is now; as it was started, if the pod is gone or its record is damaged."""
        grant = None if pod is None else self._enforced(pod)
        return grant if isinstance(grant, grants.Grant) else gate.recorded(started)

    def _request(
        self,
        tenant: str,
        pod: pods.Pod | None,
        grant: grants.Grant,
        container: grants.ContainerGrant,
    ) -> Request:
        if pod is None:
            return Request(tenant, container, grant, card_time.NO_RULE, _NOTHING_SAID)
        environment = node_pods.environment(pod, container.name)
        said = registry.container_compute(pod, environment, grant.dialect)
        self._tell_once(pod, said.problems)
        rule = self._classes.get(node_pods.priority_class(pod), card_time.NO_RULE)
        return Request(tenant, container, grant, rule, said)

    def _tell_once(self, pod: pods.Pod, problems: Collection[str]) -> None:
        for problem in problems:
            if (pod.metadata.uid, problem) not in self._told:
                self._told.add((pod.metadata.uid, problem))
                self._tell(pod, problem)


def finished(pod: pods.Pod, container: str) -> bool:
    """Whether a container of a pod that goes on has ended, and will not be started again."""
    if not isinstance(pod, node_pods.Pod):
        return False
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    end = next((s.state.terminated for s in statuses if s.name == container), None)
    role = next((s.role for s in pods.spots(pod) if s.container.name == container), None)
    if end is None or role is demands.Role.SIDECAR:
        return False
    well = end.get("exitCode") == 0
    if role is demands.Role.INIT:
        return well
    return pod.spec.restart_policy == "Never" or (pod.spec.restart_policy == "OnFailure" and well)


def written(
    root: roots.Root, requests: Collection[Request], node: compute_policies.OfNode
) -> dict[str, str]:
    """Write what differs; which tenants could not be limited, and why."""
    present = tenants.those(root, (request.tenant for request in requests))
    failed = {
        request.tenant: "its limits cannot be read"
        for request in requests
        if request.tenant not in present
    }
    times_by_name = divided(requests, present, node)
    for name, tenant in present.items():
        before = {card.uuid: card.time for card in tenant.limits.cards}
        times = times_by_name[name]
        changed = {uuid: time for uuid, time in times.items() if before[uuid] != time}
        if changed:
            try:
                tenants.set_time(root, name, changed)
            except (OSError, errors.PartageError) as error:
                failed[name] = str(error)
    return failed


def divided(
    requests: Collection[Request],
    present: Mapping[str, tenants.Tenant],
    node: compute_policies.OfNode,
) -> dict[str, dict[str, limits.Time]]:
    """How the time of each tenant is to be limited, by name and card."""
    cards: dict[str, list[card_time.Tenant]] = {}
    for request in requests:
        for uuid, seat in _seats(request, present.get(request.tenant)).items():
            cards.setdefault(uuid, []).append(_on_card(request, uuid, seat, node))
    times: dict[str, dict[str, limits.Time]] = {}
    for uuid, on_card in cards.items():
        for name, time in card_time.rates(on_card, node).items():
            times.setdefault(name, {})[uuid] = time
    return times


def _on_card(
    request: Request, uuid: str, seat: int, node: compute_policies.OfNode
) -> card_time.Tenant:
    container = request.container
    shares = [share for share in container.shares if share.uuid == uuid]
    tenant = card_time.Tenant(
        name=request.tenant,
        seat=seat,
        percent=min(100, sum(share.compute_percent for share in shares)),
        mode=container.compute_mode,
        ceiling_percent=container.compute_ceiling_percent,
        qos=request.grant.qos,
    )
    return card_time.ruled(tenant, node, request.rule, request.said)


def _seats(request: Request, tenant: tenants.Tenant | None) -> dict[str, int]:
    """By card; a tenant whose limits cannot be read has its part of the time, at a seat unknown."""
    if tenant is None:
        return {share.uuid: layout.SEATS - 1 for share in request.container.shares}
    uuids = (card.uuid for card in tenant.limits.cards)
    return dict(zip(uuids, tenant.seats, strict=True))


def _named(grant: grants.Grant | None, name: str) -> grants.ContainerGrant | None:
    containers = () if grant is None else grant.containers
    return next((container for container in containers if container.name == name), None)
