"""The C client: the same program runs direct and fenced, and tells what it was asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.fence import loads, machines, overhead
from partage.fence import tenants
from tests import leaving_out


@pytest.fixture(scope="module")
def machine() -> Iterator[machines.Machine]:
    """A simulated machine of its own."""
    if not (machines.SIMULATED / "libcuda.so.1").exists():
        leaving_out.leave_out("the simulated driver", "build it with `python -m native`")
    with machines.fresh() as made:
        yield made


@pytest.fixture(scope="module", params=["direct", "fenced"])
def tenant(request: pytest.FixtureRequest, machine: machines.Machine) -> tenants.Tenant | None:
    """Nobody, or a tenant with half of the card."""
    return loads.fixed(machine, "fenced", 50) if request.param == "fenced" else None


@pytest.mark.parametrize("call", ["launch", "alloc", "meminfo"])
def test_calls_are_timed_one_turn_after_another(
    machine: machines.Machine, tenant: tenants.Tenant | None, call: str
) -> None:
    """A turn is taken when it is given, however often."""
    with machine.running("calls", call, 100, 2, tenant=tenant) as client:
        for _ in range(2):
            client.go()
            assert client.answer(overhead.Turn).mean_ns > 0
            client.wait_until_ready()


def test_every_kernel_is_told_of_in_order(
    machine: machines.Machine, tenant: tenants.Tenant | None
) -> None:
    """What was still under way at the deadline is waited for."""
    load = loads.Load(0, 864, 100)
    with loads.busy(machine, tenant, load, 5) as client:
        client.go()
        ran = loads.ran(client, load)

    assert ran.ended_ns
    assert ran.ended_ns == sorted(ran.ended_ns)
    assert ran.percent(ran.began_ns, ran.last_ns) <= 100.1


def test_a_client_that_fails_says_so(machine: machines.Machine) -> None:
    """A mistake in the benchmark is no result."""
    with pytest.raises(machines.ClientFailed), machine.running("calls", "launch", "many", 0):
        pass
