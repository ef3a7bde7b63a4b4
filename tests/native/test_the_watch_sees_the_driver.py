"""Samples are true: of real processes, behind their fence and beside it, on a simulated card."""

from __future__ import annotations

import pytest

from partage.fence.store import limits
from partage.fence.watch import sampler, samples
from tests.native import fenced, watch_looks
from tests.native.fenced import CONTEXT_BYTES, GIB, MIB


def test_a_process_behind_its_fence_is_counted_as_the_driver_counts_it(
    machine: fenced.Machine,
) -> None:
    """To the byte, on a driver that rounds as the fence does."""
    tenant = machine.tenant()
    process = tenant.started()
    process("alloc(100 * MIB)")
    sample = watch_looks.look(machine, tenant, process.pid)
    (share,) = sample.tenants[0].shares
    assert share.counted == (samples.Counted(process.pid, CONTEXT_BYTES + 100 * MIB),)
    assert sample.holdings == (samples.Holding(share.uuid, process.pid, CONTEXT_BYTES + 100 * MIB),)
    assert (share.quota_bytes, share.context_bytes) == (GIB, CONTEXT_BYTES)


def test_a_process_beside_its_fence_is_a_tenants_and_not_counted(machine: fenced.Machine) -> None:
    """The driver knows it, and the fence does not."""
    tenant = machine.tenant()
    process = machine.start()
    process("[context(), alloc(GIB)]")
    sample = watch_looks.look(machine, tenant, process.pid)
    assert [seen.pid for seen in sample.processes] == [process.pid]
    assert sample.tenants[0].shares[0].counted == ()


def test_who_ended_since_the_driver_answered_is_not_there(machine: fenced.Machine) -> None:
    """Its memory may still be in the driver's answer."""
    tenant = machine.tenant()
    process = machine.start()
    process("[context(), alloc(GIB)]")
    card = watch_looks.occupied(machine)
    process.kill()
    sample = sampler.taken(machine.root, lambda _: tenant.name, [card], taken_s=0.0)
    assert sample.processes == ()


@pytest.mark.parametrize("damage", ["cut", "header"])
def test_a_region_that_its_tenant_damaged_counts_nothing(
    machine: fenced.Machine, damage: str
) -> None:
    """Its limits are not its own, so they are there."""
    tenant = machine.tenant()
    process = tenant.started()
    region = tenant.folder / "region"
    region.write_bytes(b"" if damage == "cut" else b"x" * region.stat().st_size)
    (share,) = watch_looks.look(machine, tenant, process.pid).tenants[0].shares
    assert share.counted == ()
    assert share.quota_bytes == GIB


def test_what_was_granted_is_due_though_the_quota_was_lowered(machine: fenced.Machine) -> None:
    """The record of the grant is not the tenant's to write; a quota that was raised counts, too."""
    tenant = machine.tenant()
    process = tenant.started()
    for quota_bytes, granted_bytes in ((GIB, 2 * GIB), (4 * GIB, 2 * GIB)):
        tenant.change(memory_bytes=quota_bytes)
        sample = sampler.taken(
            machine.root,
            lambda _: tenant.name,
            [watch_looks.occupied(machine)],
            taken_s=0.0,
            granted={(tenant.name, machine.uuids[0]): granted_bytes},
        )
        assert process.pid in {seen.pid for seen in sample.processes}
        assert sample.tenants[0].shares[0].quota_bytes == max(quota_bytes, granted_bytes)


def test_a_fence_that_lets_all_pass_is_not_judged(machine: fenced.Machine) -> None:
    """The administrator chose that."""
    tenant = machine.tenant(on_failure=limits.OnFailure.OPEN)
    process = tenant.started()
    assert watch_looks.look(machine, tenant, process.pid).tenants == ()
