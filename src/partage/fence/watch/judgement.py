"""From samples to findings: pure, so that ten thousand honest lives can be judged in a second.

A tenant is over its quota if its processes hold more than the quota and what honest programs hold
beside what is counted (`_spare_bytes`). A process is outside if its fence does not know it, it
holds more than a context, and the tenant as a whole holds more than is counted: where a server of
the tenant's own (MPS) holds what its clients have counted, nothing is hidden.

One look proves nothing: processes start and end between the driver's answer and the fence's. So a
finding is what looks the same for a while, without a break. Where the driver shows memory that
several processes share in each of them (IPC), the processes of a card have more than the card has
in use; the difference is taken off, for the tenant's benefit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from partage.core.quantities import MIB
from partage.fence.watch import escapes, samples

CONFIRM_S = 1.0  # how long something must look the same
CONFIRM_SAMPLES = 3  # and in how many looks at least
LONGEST_BREAK_S = 5.0  # between two looks that follow each other

# What an honest program holds beside what its fence counts. Drivers round each allocation up, to
# pages of up to 2 MiB; and they load code late, and make room for stacks and heaps, in each process
# about as much as a context costs.
_ROUNDING = 16  # of the quota, one part
_LEAST_SPARE_BYTES = 64 * MIB
_UNKNOWN_CONTEXT_BYTES = 512 * MIB

_TenantCard = tuple[str, str]  # a tenant on a card
_Key = tuple[str, str, str, int, int]  # kind, tenant, card, and the process where that matters


class Suspicion(msgspec.Struct, frozen=True):
    """What looks like a finding, and since when."""

    key: _Key
    since_s: float
    samples: int


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What is known after a look; the next one is judged with it."""

    taken_s: float = 0.0
    findings: tuple[escapes.Finding, ...] = ()
    suspicions: tuple[Suspicion, ...] = ()
    dues: tuple[tuple[_TenantCard, int], ...] = ()  # in bytes: what tenants may hold, see `_due`
    unaccounted_bytes: tuple[
        tuple[str, int], ...
    ] = ()  # by card: neither in a fence nor of a known process


def judged(before: Judgement, sample: samples.Sample) -> Judgement:
    """What one more look says."""
    since = {suspicion.key: suspicion for suspicion in before.suspicions}
    if sample.taken_s - before.taken_s > LONGEST_BREAK_S:
        since = {}
    suspicions, findings = [], []
    scenes = tuple(_scenes(sample, dict(before.dues)))
    for key, finding in _suspected(scenes):
        last = since.get(key, Suspicion(key, sample.taken_s, 0))
        now = Suspicion(key, last.since_s, last.samples + 1)
        suspicions.append(now)
        if now.samples >= CONFIRM_SAMPLES and sample.taken_s - now.since_s >= CONFIRM_S:
            findings.append(msgspec.structs.replace(finding, since_s=now.since_s))
    return Judgement(
        taken_s=sample.taken_s,
        findings=tuple(findings),
        suspicions=tuple(suspicions),
        dues=tuple(
            (scene.tenant_card, scene.due_bytes) for scene in scenes if scene.due_bytes is not None
        ),
        unaccounted_bytes=tuple(_unaccounted(sample, scenes)),
    )


class _Scene(msgspec.Struct, frozen=True):
    """One tenant on one card, with its processes there and what each holds."""

    tenant: str
    share: samples.Share
    held: tuple[tuple[samples.Process, int], ...]
    shared_bytes: int  # of the card: counted by the driver more than once
    last_due_bytes: int

    @property
    def tenant_card(self) -> _TenantCard:
        return self.tenant, self.share.uuid

    @property
    def due_bytes(self) -> int | None:
        """What the tenant may hold: its quota; None if it has none.

        A quota that is lowered takes nothing away, so what was within the last one may stay.
        """
        quota_bytes = self.share.quota_bytes
        if quota_bytes is None:
            return None
        return max(quota_bytes, min(self.last_due_bytes, self.real_bytes))

    @property
    def real_bytes(self) -> int:
        """What the tenant holds at least."""
        return sum(size for _, size in self.held) - self.shared_bytes

    @property
    def counted_bytes(self) -> int:
        return sum(process.used_bytes for process in self.share.counted)

    def hidden_bytes(self, process: samples.Process, held_bytes: int) -> int:
        """What a process holds, and its fence does not count for it."""
        own = (c.used_bytes for c in self.share.counted if c.inner_pid == process.inner_pid)
        return held_bytes - sum(own)


def _suspected(scenes: Iterable[_Scene]) -> Iterator[tuple[_Key, escapes.Finding]]:
    for scene in scenes:
        spare_bytes = _spare_bytes(scene)
        due_bytes = scene.due_bytes
        if due_bytes is not None and scene.real_bytes - due_bytes > spare_bytes:
            yield _excess(scene, scene.real_bytes - due_bytes)
        hidden_bytes = scene.real_bytes - scene.counted_bytes
        if hidden_bytes > spare_bytes:
            yield from _outsiders(scene, hidden_bytes)


def _scenes(sample: samples.Sample, dues: Mapping[_TenantCard, int]) -> Iterator[_Scene]:
    processes = {process.pid: process for process in sample.processes}
    shared = dict(_shared(sample))
    held: dict[tuple[str, str], list[tuple[samples.Process, int]]] = {}
    for holding in sample.holdings:
        process = processes.get(holding.pid)
        if process is not None and holding.used_bytes is not None:
            key = process.tenant, holding.uuid
            held.setdefault(key, []).append((process, holding.used_bytes))
    for tenant in sample.tenants:
        for share in tenant.shares:
            holders = held.get((tenant.name, share.uuid))
            if holders:
                last_due_bytes = dues.get((tenant.name, share.uuid), 0)
                shared_bytes = shared.get(share.uuid, 0)
                yield _Scene(tenant.name, share, tuple(holders), shared_bytes, last_due_bytes)


def _shared(sample: samples.Sample) -> Iterator[tuple[str, int]]:
    """By card: what its processes hold beyond what is in use there."""
    sums = _sums((holding.uuid, holding.used_bytes or 0) for holding in sample.holdings)
    for card in sample.cards:
        if card.used_bytes is not None:
            yield card.uuid, max(0, sums.get(card.uuid, 0) - card.used_bytes)


def _spare_bytes(scene: _Scene) -> int:
    context_bytes = scene.share.context_bytes or _UNKNOWN_CONTEXT_BYTES
    rounding_bytes = (scene.share.quota_bytes or 0) // _ROUNDING
    return len(scene.held) * context_bytes + _LEAST_SPARE_BYTES + rounding_bytes


def _excess(scene: _Scene, beyond_bytes: int) -> tuple[_Key, escapes.Finding]:
    """The process that hides most stands for the tenant; it may be another one in the next look."""
    process, held_bytes = max(
        scene.held, key=lambda holder: (scene.hidden_bytes(*holder), holder[0].started_ticks)
    )
    key = (str(escapes.Kind.EXCESS), scene.tenant, scene.share.uuid, 0, 0)
    return key, _finding(escapes.Kind.EXCESS, scene, process, held_bytes, beyond_bytes)


def _outsiders(scene: _Scene, hidden_bytes: int) -> Iterator[tuple[_Key, escapes.Finding]]:
    """Processes with more than a context that the fence does not know."""
    inside = {process.inner_pid for process in scene.share.counted}
    bare_bytes = (scene.share.context_bytes or _UNKNOWN_CONTEXT_BYTES) + _LEAST_SPARE_BYTES
    for process, held_bytes in scene.held:
        if process.inner_pid not in inside and held_bytes > bare_bytes:
            key = (
                *(str(escapes.Kind.OUTSIDE), scene.tenant, scene.share.uuid),
                *(process.pid, process.started_ticks),
            )
            beyond_bytes = min(hidden_bytes, held_bytes)
            yield key, _finding(escapes.Kind.OUTSIDE, scene, process, held_bytes, beyond_bytes)


def _finding(
    kind: escapes.Kind, scene: _Scene, process: samples.Process, held_bytes: int, beyond_bytes: int
) -> escapes.Finding:
    return escapes.Finding(
        kind=kind,
        tenant=scene.tenant,
        uuid=scene.share.uuid,
        process=process,
        held_bytes=held_bytes,
        real_bytes=scene.real_bytes,
        beyond_bytes=beyond_bytes,
        harms=kind is escapes.Kind.EXCESS or scene.share.timed,
        since_s=0.0,
    )


def _unaccounted(sample: samples.Sample, scenes: Iterable[_Scene]) -> Iterator[tuple[str, int]]:
    """In use, and neither counted by a fence nor held by a process of no tenant."""
    tenants = {process.pid for process in sample.processes}
    foreign = _sums(
        (holding.uuid, holding.used_bytes or 0)
        for holding in sample.holdings
        if holding.pid not in tenants
    )
    fenced = _sums(map(_accounted, scenes))
    for card in sample.cards:
        if card.used_bytes is not None:
            accounted_bytes = foreign.get(card.uuid, 0) + fenced.get(card.uuid, 0)
            yield card.uuid, max(0, card.used_bytes - accounted_bytes)


def _accounted(scene: _Scene) -> tuple[str, int]:
    """Of which card, and what a fence counts, as far as processes of the tenant hold so much."""
    return scene.share.uuid, min(scene.counted_bytes, sum(size for _, size in scene.held))


def _sums(amounts: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    sums: dict[str, int] = {}
    for uuid, size in amounts:
        sums[uuid] = sums.get(uuid, 0) + size
    return sums
