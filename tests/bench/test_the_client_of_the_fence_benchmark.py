"""The C client: the same program runs direct and fenced, and tells what it was asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.fence import busy_tenants, overhead, simulated_machine
from partage.fence.store import tenants
from tests import leaving_out


@pytest.fixture(scope="module")
def machine() -> Iterator[simulated_machine.Machine]:
    """A simulated machine of its own."""
    if not (simulated_machine.SIMULATED / "libcuda.so.1").exists():
        leaving_out.leave_out("the simulated driver", "build it with `python -m native`")
    with simulated_machine.fresh() as made:
        yield made


@pytest.fixture(scope="module", params=["direct", "fenced"])
def tenant(
    request: pytest.FixtureRequest, machine: simulated_machine.Machine
) -> tenants.Tenant | None:
    """Nobody, or a tenant with half of the card."""
    return busy_tenants.fixed(machine, "fenced", 50) if request.param == "fenced" else None


@pytest.mark.parametrize("call", ["launch", "alloc", "meminfo"])
def test_calls_are_timed_one_turn_after_another(
    machine: simulated_machine.Machine, tenant: tenants.Tenant | None, call: str
) -> None:
    """A turn is taken when it is given, however often."""
    with machine.running("calls", call, 100, 2, tenant=tenant) as client:
        for _ in range(2):
            client.go()
            assert client.answer(overhead.Turn).mean_ns > 0
            client.wait_until_ready()


def test_every_kernel_is_told_of_in_order(
    machine: simulated_machine.Machine, tenant: tenants.Tenant | None
) -> None:
    """What was still under way at the deadline is waited for."""
    load = busy_tenants.Load(0, 864, 100)
    with busy_tenants.busy(machine, tenant, load, 5) as client:
        client.go()
        ran = busy_tenants.ran(client, load)

    assert ran.ended_ns
    assert ran.ended_ns == sorted(ran.ended_ns)
    assert ran.percent(ran.began_ns, ran.last_ns) <= 100.1


def test_a_client_that_fails_says_so(machine: simulated_machine.Machine) -> None:
    """A mistake in the benchmark is no result."""
    with (
        pytest.raises(simulated_machine.ClientFailed),
        machine.running("calls", "launch", "many", 0),
    ):
        pass
