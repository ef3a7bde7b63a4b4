"""Looks of the watch at a simulated machine: what the driver says, beside what a fence counts."""

from __future__ import annotations

from partage.devices import nvml
from partage.fence import processes
from partage.fence.store import tenants
from partage.fence.watch import escapes, judgement, sampler, samples
from tests.native import fenced


def occupied(machine: fenced.Machine) -> nvml.Occupancy:
    """The card as the driver tells of it."""
    held = machine.truth()
    return nvml.Occupancy(
        machine.uuids[0],
        machine.observer("card_memory(0)")["used"],
        tuple(nvml.Process(pid, used) for pid, used in held.items()),
    )


def look(
    machine: fenced.Machine, tenant: fenced.Tenant, *members: int, taken_s: float = 0.0
) -> samples.Sample:
    """A look at the card; these processes are the tenant's."""

    def whose(process: processes.Facts) -> str:
        return tenant.name if process.pid in members else ""

    return sampler.taken(machine.root, whose, [occupied(machine)], taken_s=taken_s)


def findings(
    machine: fenced.Machine, tenant: fenced.Tenant, *members: int
) -> tuple[escapes.Finding, ...]:
    """What is confirmed after looks over a second, as fast as they can be taken."""
    verdict = judgement.Judgement()
    for number in range(3):
        sample = look(machine, tenant, *members, taken_s=1000.0 + 0.5 * number)
        verdict = judgement.judged(verdict, sample)
    return verdict.findings


def finds(machine: fenced.Machine, tenant: fenced.Tenant, escaped: int, honest: int) -> bool:
    """Whether the one process is named, with what it holds and has too much, and not the other."""
    confirmed = findings(machine, tenant, escaped, honest)
    held_bytes = machine.truth()[escaped]
    beyond_bytes = held_bytes - tenants.read(machine.root, tenant.name).limits.cards[0].memory_bytes
    return bool(confirmed) and all(
        (finding.process.pid, finding.held_bytes) == (escaped, held_bytes)
        and finding.beyond_bytes >= beyond_bytes
        for finding in confirmed
    )
