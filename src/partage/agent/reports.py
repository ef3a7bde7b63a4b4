"""Reports: what a node's cards and containers were granted, and what they do with it.

A pure function of what the agent knows, so that ``/metrics``, ``partage top`` and ``partage
inspect`` show the same numbers. A container is there from the moment its pod is granted, with zeros
until it starts. What is unknown is None, never zero: the use of a container whose fence counts
nothing, the card time of one whose time is not limited and so not counted.

Counters only grow; how much of a card somebody gets is the difference of two reports (`rates`).
The names of the fields are read by programs, and stay.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from partage.core import cards as card_facts
from partage.core import grants
from partage.core.problems import Problem
from partage.core.quantities import MIB
from partage.fence import usage, usage_rows
from partage.fence.watch import escapes

if TYPE_CHECKING:
    from partage.devices import nvml

PATH = "/v1/report"
DEFAULT_ADDRESS = "127.0.0.1"
DEFAULT_PORT = 9437

Key = tuple[str, str, str]  # uid of the pod, name of the container, uuid of the card


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent knows of one granted container."""

    grant: grants.Grant
    container: grants.ContainerGrant
    fence: str = ""  # the level in force; empty: it has whole cards, or has not started
    tenant: str = ""  # the name of its fence's tenant, if it has one


class Outside(msgspec.Struct, frozen=True, kw_only=True):
    """What the watch found, and what it cannot see."""

    findings: Mapping[tuple[str, str], escapes.Finding] = {}  # by tenant and card
    unaccounted_bytes: Mapping[str, int] = {}  # by card
    problem: str = ""


NOTHING_OUTSIDE = Outside()
_NO_CORDONS: Mapping[str, str] = {}


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver tells of a card now."""

    used_mib: int | None = None
    utilization_percent: int | None = None


class CardReport(msgspec.Struct, frozen=True, kw_only=True):
    """One card: all that was granted of it, and what the driver measures."""

    index: int
    uuid: str
    model: str | None
    memory_mib: int
    used_mib: int | None
    utilization_percent: int | None
    healthy: bool
    reason: str  # why it is not
    granted_mib: int
    granted_percent: int
    tenants: int  # containers that have a share of it
    unaccounted_mib: int | None = None  # in use, counted by no fence, held by no known process
    cordoned: bool = False  # nothing new lands there
    cordon_reason: str = ""


class ContainerReport(msgspec.Struct, frozen=True, kw_only=True):
    """One container on one of its cards."""

    namespace: str
    pod: str  # empty where only the fence's folder was read
    uid: str
    container: str
    dialect: str | None
    index: int | None  # of the card
    uuid: str
    memory_mib: int  # granted; 0: as much as the card has
    compute_percent: int  # granted; 0: nothing was said
    ceiling_percent: int | None  # of mode burst
    mode: str  # of compute: in force, or as asked until it starts
    exclusive: bool
    fence: str | None  # "outside" while it holds memory that its fence does not hold
    paused: bool
    used_bytes: int | None
    peak_bytes: int | None
    refused: int | None  # allocations, because of the quota
    busy_ns: int | None
    throttled_ns: int | None  # that launches waited, all processes added up
    throttled: int | None  # launches that waited
    launches: int | None
    outside_bytes: int | None = None  # not counted by its fence, or above its quota
    outside_pid: int | None = None  # the process that has most of it, as the node knows it
    share_percent: float | None = None  # of compute, in force; None: no share is, or not started
    yields: bool = False  # its launches wait while online containers of the card have work

    @property
    def key(self) -> Key:
        """What makes it the same in two reports."""
        return self.uid, self.container, self.uuid


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A node at one moment."""

    api_version: str = msgspec.field(default="output.partage.dev/v1", name="apiVersion")
    kind: str = "Report"
    node: str
    taken_ns: int  # since 1970
    cards: tuple[CardReport, ...]
    containers: tuple[ContainerReport, ...]
    problems: tuple[Problem, ...] = ()


def report(
    node: str,
    cards: Sequence[card_facts.Card],
    *,
    unhealthy: Mapping[str, str],
    measured: Mapping[str, Measured],
    containers: Sequence[Container],
    used: Mapping[str, usage.Usage | usage.Unreadable],
    taken_ns: int,
    outside: Outside = NOTHING_OUTSIDE,
    problems: Iterable[Problem] = (),
    cordons: Mapping[str, str] = _NO_CORDONS,
) -> Report:
    """A node now: why cards are unhealthy or cordoned, and what they measure; usage by tenant."""
    cards_by_uuid = {card.uuid: card for card in cards}
    usages = {name: read for name, read in used.items() if isinstance(read, usage.Usage)}
    unreadable = [read for read in used.values() if isinstance(read, usage.Unreadable)]
    reporter = _Reporter(cards_by_uuid, measured, _alone(containers), outside.findings)
    return Report(
        node=node,
        taken_ns=taken_ns,
        cards=tuple(
            _cordoned(card, cordons)
            for card in _cards(cards, unhealthy, measured, containers, outside.unaccounted_bytes)
        ),
        containers=tuple(
            row
            for container in containers
            for row in reporter.rows(container, usages.get(container.tenant))
        ),
        problems=(
            *problems,
            *(Problem(f"tenant {tenant.tenant}", tenant.problem) for tenant in unreadable),
            *_problems(containers, outside),
        ),
    )


def measured(readings: Iterable[nvml.Reading]) -> dict[str, Measured]:
    """What NVML reads, by uuid."""
    return {
        reading.uuid: Measured(
            used_mib=None if reading.used_bytes is None else reading.used_bytes // MIB,
            utilization_percent=reading.utilization_percent,
        )
        for reading in readings
        if reading.uuid is not None
    }


def rates(before: Report | None, now: Report) -> dict[Key, usage_rows.Rate]:
    """What containers got between two reports."""
    if before is None:
        return {}
    return usage_rows.rates(before.containers, now.containers, now.taken_ns - before.taken_ns)


def _cards(
    cards: Sequence[card_facts.Card],
    unhealthy: Mapping[str, str],
    measured: Mapping[str, Measured],
    containers: Sequence[Container],
    unaccounted_bytes: Mapping[str, int],
) -> Iterator[CardReport]:
    takings: dict[str, list[grants.Taking]] = collections.defaultdict(list)
    by_owner: dict[str, dict[str, grants.Taking]] = {}  # uid of a pod, or name of an ElasticGPU
    for container in containers:
        by_owner[container.grant.pod.uid] = grants.takings(container.grant)
        by_owner |= grants.claimed_takings(container.grant)
    for uuid, taking in (item for given in by_owner.values() for item in given.items()):
        takings[uuid].append(taking)
    tenants = collections.Counter(uuid for container in containers for uuid in _uuids(container))
    for card in cards:
        now = measured.get(card.uuid, Measured())
        yield CardReport(
            index=card.index,
            uuid=card.uuid,
            model=card.model or None,
            memory_mib=card.memory_mib,
            used_mib=now.used_mib,
            utilization_percent=now.utilization_percent,
            healthy=card.healthy and card.uuid not in unhealthy,
            reason=unhealthy.get(card.uuid, ""),
            granted_mib=sum(taking.memory_mib for taking in takings[card.uuid]),
            granted_percent=sum(taking.compute_percent for taking in takings[card.uuid]),
            tenants=tenants[card.uuid],
            unaccounted_mib=_mib(unaccounted_bytes.get(card.uuid)),
        )


def _cordoned(card: CardReport, cordons: Mapping[str, str]) -> CardReport:
    if card.uuid not in cordons:
        return card
    return msgspec.structs.replace(card, cordoned=True, cordon_reason=cordons[card.uuid])


def _mib(size: int | None) -> int | None:
    return None if size is None else size // MIB


def _problems(containers: Sequence[Container], outside: Outside) -> Iterator[Problem]:
    """What the watch found, by the names of pods."""
    if outside.problem:
        yield Problem("the watch", outside.problem)
    pods = {container.tenant: container for container in containers if container.tenant}
    for (tenant, _uuid), finding in sorted(outside.findings.items()):
        if tenant in pods:
            pod = pods[tenant].grant.pod
            yield Problem(f"pod {pod.namespace}/{pod.name}", finding.text)


def _uuids(container: Container) -> set[str]:
    return {share.uuid for share in container.container.shares}


def _alone(containers: Sequence[Container]) -> set[str]:
    """Cards that one container has for itself: all that the driver measures there is its own."""
    holders = collections.Counter(uuid for container in containers for uuid in _uuids(container))
    exclusive = {
        s.uuid for container in containers for s in container.container.shares if s.exclusive
    }
    return {uuid for uuid in exclusive if holders[uuid] == 1}


class _Reporter:
    """The rows of containers."""

    def __init__(
        self,
        cards_by_uuid: Mapping[str, card_facts.Card],
        measured: Mapping[str, Measured],
        alone: set[str],
        outside: Mapping[tuple[str, str], escapes.Finding],
    ) -> None:
        self._cards = cards_by_uuid
        self._measured = measured
        self._alone = alone
        self._outside = outside

    def rows(self, container: Container, used: usage.Usage | None) -> Iterator[ContainerReport]:
        """One for each of its cards, in its order."""
        by_card = {card.uuid: card for card in used.cards} if used else {}
        shares: dict[str, list[grants.Share]] = {}
        for share in container.container.shares:
            shares.setdefault(share.uuid, []).append(share)
        for uuid, several in shares.items():
            row = self._row(container, uuid, several, by_card.get(uuid))
            finding = self._outside.get((container.tenant, uuid))
            yield row if finding is None else _marked(row, finding)

    def _row(
        self,
        container: Container,
        uuid: str,
        shares: list[grants.Share],
        now: usage.CardUsage | None,
    ) -> ContainerReport:
        card = self._cards.get(uuid)
        index = shares[0].index if card is None else card.index
        pod = container.grant.pod
        asked_percent = min(100, sum(share.compute_percent for share in shares))
        exclusive = any(share.exclusive for share in shares)
        timed = asked_percent > 0 and not exclusive
        mode, ceiling_percent = (
            usage_rows.mode_in_force(now)
            if now
            else usage_rows.mode_asked(container.container, timed=timed)
        )
        return ContainerReport(
            namespace=pod.namespace,
            pod=pod.name,
            uid=pod.uid,
            container=container.container.name,
            dialect=container.grant.dialect or None,
            index=index if index >= 0 else None,
            uuid=uuid,
            memory_mib=sum(share.memory_mib for share in shares),
            compute_percent=asked_percent,
            ceiling_percent=ceiling_percent,
            mode=mode,
            exclusive=exclusive,
            fence=container.fence or None,
            paused=now.paused if now else False,
            share_percent=usage_rows.share_in_force(now) if now else None,
            yields=now.yields if now else False,
            **msgspec.structs.asdict(
                usage_rows.counted(now)
                if now
                else self._uncounted(container, uuid, exclusive, timed)
            ),
        )

    def _uncounted(
        self, container: Container, uuid: str, exclusive: bool, timed: bool
    ) -> usage_rows.Counts:
        """Of a container for which no fence keeps account."""
        if uuid in self._alone and not container.tenant:
            used_mib = self._measured.get(uuid, Measured()).used_mib
            return usage_rows.Counts(used_bytes=None if used_mib is None else used_mib * MIB)
        if container.fence or exclusive:
            return usage_rows.Counts()  # it may run, and its use is unknown
        return usage_rows.NOTHING_YET if timed else usage_rows.NO_MEMORY_YET


def _marked(row: ContainerReport, finding: escapes.Finding) -> ContainerReport:
    return msgspec.structs.replace(row, **finding.marks(row.used_bytes))
