"""The watch of a node: what containers hold beside their fences is seen, told, and ended.

A fence of the level ``hook`` lives in the tenant's own processes, and who wants out gets out. So
twice a second the driver is asked what each process holds, and that is compared with what the
fences count (:mod:`partage.fence.watch`). Nothing here is in a tenant's reach.

What is done about a finding is the administrator's choice: for all nodes by a flag, for one by a
label of the node, for a class of pods by their PriorityClass. A pod's own annotations play no part,
since it is the pod's author who may want out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NoReturn

import msgspec

from partage.agent import cdi, driver, gate, node_pods, ownership, world
from partage.core import errors
from partage.core.quantities import MIB
from partage.devices import nvml
from partage.dialects import pods
from partage.fence import roots, tenants
from partage.fence.watch import facts, judgement, remedies, samples
from partage.fence.watch.facts import Then

log = logging.getLogger(__name__)

LABEL = "partage.dev/outside"  # on a node: what is done there
_PERIOD_S = 0.5
_BLIND_LOOKS = 20
_BLIND = (
    "the driver names no process of the containers, so that what escapes their fences is not seen: "
    "the agent has to be in the host's pid namespace (hostPID: true, as in deploy/agent.yaml)"
)


class Policy(msgspec.Struct, frozen=True):
    """What the administrator wants to be done."""

    then: Then = Then.END
    classes: Mapping[str, Then] = {}  # by name of the PriorityClass

    def chosen(self, labels: Mapping[str, str], priority_class: str) -> Then:
        """For a pod of this class, on a node with these labels; one without sense is none."""
        if priority_class in self.classes:
            return self.classes[priority_class]
        wanted = labels.get(LABEL, "")
        return Then(wanted) if wanted in set(Then) else self.then


def occupancies(uuids: Iterable[str]) -> tuple[nvml.Occupancy, ...]:
    """These cards, as the driver tells of them; those that it does not tell of are left out."""
    found: list[nvml.Occupancy] = []
    try:
        with nvml.Nvml() as door:
            for uuid in uuids:
                with contextlib.suppress(errors.DeviceError):  # its health says why
                    found.append(door.occupancy(uuid))
    except errors.DeviceError as error:
        log.debug("%s", error)
    return tuple(found)


class Ways(msgspec.Struct, frozen=True):
    """How cards are asked, and how a finding reaches others."""

    ask: Callable[[Iterable[str]], tuple[nvml.Occupancy, ...]]  # cards by uuid; may take long
    tell: Callable[[pods.Pod, str, bool], None]  # of a pod; the text, and whether it was ended
    count: Callable[[facts.Finding, Then], None]


class Watch:
    """Looks, and does what is to be done."""

    def __init__(
        self,
        root: roots.Root,
        here: world.World,
        known: node_pods.NodePods,
        started: Mapping[str, cdi.Started],
        *,
        policy: Policy,
        ways: Ways,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.judgement = judgement.Judgement()
        self.problem = ""  # why it cannot see
        self._root = root
        self._world = here
        self._pods = known
        self._started = started
        self._policy = policy
        self._ways = ways
        self._clock = clock
        self._handled: dict[facts.Process, Then] = {}
        self._blind_looks = 0

    @property
    def outside(self) -> dict[tuple[str, str], facts.Finding]:
        """What is found now, by tenant and card; the first where there are several."""
        return {(each.tenant, each.uuid): each for each in reversed(self.judgement.findings)}

    async def run(self) -> NoReturn:
        """For ever: look."""
        while True:
            try:
                await self.look()
            except (OSError, errors.PartageError) as error:  # it must not end the agent
                log.warning("what is outside of fences could not be looked at: %s", error)
            await asyncio.sleep(_PERIOD_S)

    async def look(self) -> None:
        """Once; a driver that does not answer tells nothing, and whoever watches health says so."""
        began = tuple(self._started.values())
        owners = ownership.owners(self._pods.known, began)
        sample = await driver.apart(lambda: self._sample(owners.whose, began))
        self.judgement = judgement.judged(self.judgement, sample)
        await self._notice_blindness(sample)
        found = facts.gravest(self.judgement.findings)
        for finding in found.values():
            await self._handle(finding, owners.whose)
        self._handled = {key: then for key, then in self._handled.items() if key in found}

    def _sample(self, whose: samples.Whose, began: Iterable[cdi.Started]) -> facts.Sample:
        taken_s = self._clock()
        cards = self._ways.ask(card.uuid for card in self._world.node.cards)
        granted = dict(_granted(began))
        return samples.taken(self._root, whose, cards, taken_s=taken_s, granted=granted)

    async def _handle(self, finding: facts.Finding, whose: samples.Whose) -> None:
        """What is to be done about one process, once; again if something else is wanted by now."""
        pod = self._pods.known.get(finding.tenant.partition(".")[0])
        if pod is None:
            return
        wanted = self._policy.chosen(self._world.labels, _priority_class(pod))
        then = remedies.proper(wanted, finding)
        if self._handled.get(finding.process) is then:
            return
        self._handled[finding.process] = then
        done = await asyncio.to_thread(
            remedies.done, self._root, then, finding, lambda now: whose(now) == finding.tenant
        )
        text = f"{self._card(finding.uuid)}: {finding.text}; {done}"
        log.warning("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, text)
        self._ways.count(finding, then)
        self._ways.tell(pod, text, then is Then.END)

    def _card(self, uuid: str) -> str:
        index = next((card.index for card in self._world.node.cards if card.uuid == uuid), None)
        return f"card {uuid}" if index is None else f"card {index}"

    async def _notice_blindness(self, sample: facts.Sample) -> None:
        """Fences know of processes, and the driver names none, look after look."""
        names = tuple(each.tenant for each in self._started.values() if each.tenant)
        blind = not sample.holdings and await asyncio.to_thread(_anybody, self._root, names)
        self._blind_looks = self._blind_looks + 1 if blind else 0
        before, self.problem = self.problem, _BLIND if self._blind_looks >= _BLIND_LOOKS else ""
        if self.problem and not before:
            log.error("%s", self.problem)


def _granted(began: Iterable[cdi.Started]) -> Iterator[tuple[samples.Place, int]]:
    """What fenced containers were granted on each of their cards."""
    for each in began:
        grant = gate.recorded(each) if each.tenant else None
        for container in grant.containers if grant is not None else ():
            if container.name == each.container:
                for uuid in {share.uuid for share in container.shares}:
                    shares = (share for share in container.shares if share.uuid == uuid)
                    yield (each.tenant, uuid), sum(share.memory_mib for share in shares) * MIB


def _anybody(root: roots.Root, names: Iterable[str]) -> bool:
    return any(tenants.running(root, name) for name in names)


def _priority_class(pod: pods.Pod) -> str:
    spec = pod.spec
    return spec.priority_class_name if isinstance(spec, node_pods.Spec) else ""
