"""The watch of a node: what containers hold beside their fences is seen, told, and ended.

A fence of the level ``hook`` lives in the tenant's own processes, so a tenant can get around it.
Therefore the driver is asked twice a second what each process holds, and that is compared with
what the fences count (:mod:`partage.fence.watch`). A tenant cannot reach anything here.

What is done about a finding is the administrator's choice: for all nodes by a flag, for one by a
label of the node, for a class of pods by their PriorityClass. A pod's own annotations do not count,
because they are written by the pod's author, who may want to escape.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NoReturn

import msgspec

from partage.agent import foreign_use, node_driver, node_state, process_owners
from partage.agent.containers import cdi, gate
from partage.agent.pods import node_pods
from partage.core import errors
from partage.core.quantities import MIB
from partage.devices import nvml
from partage.dialects import pods
from partage.fence import processes
from partage.fence.store import roots, tenants
from partage.fence.watch import escapes, judgement, remedies, sampler, samples
from partage.fence.watch.escapes import Then

log = logging.getLogger(__name__)

LABEL = "partage.dev/outside"  # on a node: what is done there
_PERIOD_S = 0.5
_BLIND_LOOKS = 20
_BLIND = (
    "the driver reports no process of the containers, so the agent cannot see what escapes their "
    "fences: run it in the host's pid namespace (hostPID: true, as in deploy/agent.yaml)"
)


class Policy(msgspec.Struct, frozen=True):
    """What the administrator wants to be done."""

    then: Then = Then.END
    classes: Mapping[str, Then] = {}  # by name of the PriorityClass

    def chosen(self, labels: Mapping[str, str], priority_class: str) -> Then:
        """For a pod of this class, on a node with these labels; one without sense is none."""
        if priority_class in self.classes:
            return self.classes[priority_class]
        remedy = labels.get(LABEL, "")
        return Then(remedy) if remedy in set(Then) else self.then


def occupancies(uuids: Iterable[str]) -> tuple[nvml.Occupancy, ...]:
    """These cards, as the driver tells of them; those that it does not tell of are left out."""
    answers: list[nvml.Occupancy] = []
    try:
        with nvml.Nvml() as door:
            for uuid in uuids:
                with contextlib.suppress(errors.DeviceError):  # its health says why
                    answers.append(door.occupancy(uuid))
    except errors.DeviceError as error:
        log.debug("%s", error)
    return tuple(answers)


class Callbacks(msgspec.Struct, frozen=True):
    """How cards are asked, and how a finding reaches others."""

    ask: Callable[[Iterable[str]], tuple[nvml.Occupancy, ...]]  # cards by uuid; may take long
    tell: Callable[[pods.Pod, str, bool], None]  # of a pod; the text, and whether it was ended
    count: Callable[[escapes.Finding, Then], None]
    notice: Callable[[foreign_use.Look], None]  # who else is on the cards


class Watch:
    """Looks, and does what is to be done."""

    def __init__(
        self,
        root: roots.Root,
        state: node_state.NodeState,
        pods_of_node: node_pods.NodePods,
        started: Mapping[str, cdi.Started],
        *,
        policy: Policy,
        callbacks: Callbacks,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.judgement = judgement.Judgement()
        self.problem = ""  # why it cannot see
        self._root = root
        self._state = state
        self._pods = pods_of_node
        self._started = started
        self._policy = policy
        self._callbacks = callbacks
        self._clock = clock
        self._handled: dict[samples.Process, Then] = {}
        self._blind_looks = 0
        own = processes.facts(os.getpid())
        self._own_cgroups = () if own is None else own.cgroups

    @property
    def outside(self) -> dict[tuple[str, str], escapes.Finding]:
        """What is found now, by tenant and card; the first where there are several."""
        return {
            (finding.tenant, finding.uuid): finding for finding in reversed(self.judgement.findings)
        }

    async def run(self) -> NoReturn:
        """For ever: look."""
        while True:
            try:
                await self.look()
            except (OSError, errors.PartageError) as error:  # it must not end the agent
                log.warning("processes outside their fences could not be checked: %s", error)
            await asyncio.sleep(_PERIOD_S)

    async def look(self) -> None:
        """Once; a driver that does not answer tells nothing; the watch of health reports that."""
        began = tuple(self._started.values())
        owners = process_owners.owners(self._pods.by_uid, began, self._own_cgroups)
        sample, others = await node_driver.apart(lambda: self._seen(owners, began))
        self._callbacks.notice(others)
        self.judgement = judgement.judged(self.judgement, sample)
        await self._notice_blindness(sample)
        findings = escapes.gravest(self.judgement.findings)
        for finding in findings.values():
            await self._handle(finding, owners.whose)
        self._handled = {key: then for key, then in self._handled.items() if key in findings}

    def _seen(
        self, owners: process_owners.Owners, began: Iterable[cdi.Started]
    ) -> tuple[samples.Sample, foreign_use.Look]:
        """What tenants hold, and who else is there, by one answer of the driver."""
        taken_s = self._clock()
        cards = self._callbacks.ask(card.uuid for card in self._state.node.cards)
        granted = dict(_granted(began))
        sample = sampler.taken(self._root, owners.whose, cards, taken_s=taken_s, granted=granted)
        return sample, foreign_use.look(cards, owners.is_foreign, taken_s=taken_s)

    async def _handle(self, finding: escapes.Finding, whose: sampler.Whose) -> None:
        """What is to be done about one process, once; again if something else is wanted by now."""
        pod = self._pods.by_uid.get(self._uid(finding))
        if pod is None:
            return
        chosen = self._policy.chosen(self._state.labels, node_pods.priority_class(pod))
        then = remedies.proper(chosen, finding)
        if self._handled.get(finding.process) is then:
            return
        self._handled[finding.process] = then
        done = await asyncio.to_thread(
            remedies.done, self._root, then, finding, lambda now: whose(now) == finding.tenant
        )
        text = f"{self._card(finding.uuid)}: {finding.text}; {done}"
        log.warning("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, text)
        self._callbacks.count(finding, then)
        self._callbacks.tell(pod, text, then is Then.END)

    def _uid(self, finding: escapes.Finding) -> str:
        """The pod of a process; of pods that share an ElasticGPU, the one in whose cgroup it is."""
        users = {s.uid for s in self._started.values() if s.tenant == finding.tenant}
        facts = processes.facts(finding.process.pid) if len(users) > 1 else None
        return (facts and process_owners.pod_of(facts, users)) or min(users, default="")

    def _card(self, uuid: str) -> str:
        index = next((card.index for card in self._state.node.cards if card.uuid == uuid), None)
        return f"card {uuid}" if index is None else f"card {index}"

    async def _notice_blindness(self, sample: samples.Sample) -> None:
        """Fences know of processes, and the driver names none, look after look."""
        names = tuple(started.tenant for started in self._started.values() if started.tenant)
        blind = not sample.holdings and await asyncio.to_thread(_anybody, self._root, names)
        self._blind_looks = self._blind_looks + 1 if blind else 0
        before, self.problem = self.problem, _BLIND if self._blind_looks >= _BLIND_LOOKS else ""
        if self.problem and not before:
            log.error("%s", self.problem)


def _granted(began: Iterable[cdi.Started]) -> Iterator[tuple[sampler.TenantCard, int]]:
    """What fenced containers were granted on each of their cards."""
    for started in began:
        grant = gate.recorded(started) if started.tenant else None
        for container in grant.containers if grant is not None else ():
            if container.name == started.container:
                for uuid in {share.uuid for share in container.shares}:
                    shares = (share for share in container.shares if share.uuid == uuid)
                    yield (started.tenant, uuid), sum(share.memory_mib for share in shares) * MIB


def _anybody(root: roots.Root, names: Iterable[str]) -> bool:
    return any(tenants.running(root, name) for name in names)
