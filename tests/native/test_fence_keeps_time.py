"""A tenant gets no more of a card's time than its share, however it launches.

Bounds from below alone: that a share is also reached is a matter of a quiet machine, and measured
by `make bench-fence`.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from partage.fence.store import limits, tenants
from tests.local import sites
from tests.native import fenced

PERCENT = 10_000  # in millionths
MAKE_UP_S = 0.05  # what a late launch may make up for
FORMS = (
    "cuLaunchKernel",
    "cuLaunchKernel_ptsz",
    "cuLaunchKernelEx",
    "cuLaunchKernelEx_ptsz",
    "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernel_ptsz",
    "cuLaunchCooperativeKernelMultiDevice",
    "cuLaunch",
    "cuLaunchGrid",
    "cuLaunchGridAsync",
)


def started(tenant: fenced.Tenant) -> fenced.Process:
    """A program that can launch."""
    process = tenant.started()
    process("from timed_kernels import *")
    return process


def fixed(machine: fenced.Machine, percent: int, name: str = "job") -> fenced.Tenant:
    """A tenant with so much of the card's time and no more."""
    share = percent * PERCENT
    return machine.tenant(name, mode=limits.Mode.FIXED, share_millionths=share)


@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_launch_is_held_to_the_share(machine: fenced.Machine, form: str) -> None:
    """60 ms of work take 300 ms of a tenant with a fifth of the card, but for the last kernel."""
    process = started(fixed(machine, 20))
    assert process(f"took(60, 1000, {form!r})") >= 59 * 0.005 - MAKE_UP_S


@pytest.mark.parametrize("blocks", [1, 100, 20_000])
def test_the_size_of_the_grid_makes_no_difference(machine: fenced.Machine, blocks: int) -> None:
    """What counts is the time that a kernel takes."""
    process = started(fixed(machine, 20))
    assert process(f"took(60, 1000, blocks={blocks})") >= 59 * 0.005 - MAKE_UP_S


@pytest.mark.parametrize(("count", "micros"), [(2000, 50), (100, 1000), (6, 20_000)])
def test_kernels_of_any_length_are_held_to_the_share(
    machine: fenced.Machine, count: int, micros: int
) -> None:
    """100 ms of work take 400 ms of a tenant with a quarter of the card."""
    process = started(fixed(machine, 25))
    asked_s = (count - 1) * micros / 1e6
    assert process(f"took({count}, {micros})") >= asked_s * 4 * 0.97 - MAKE_UP_S - micros / 1e6 * 4


def test_graphs_are_held_to_the_share(machine: fenced.Machine) -> None:
    """A graph costs what its kernels take together."""
    process = started(fixed(machine, 20))
    assert process("graphs_took(12, 5, 1000)") >= 11 * 0.025 - MAKE_UP_S


def test_kernels_that_come_once_are_held_too(machine: fenced.Machine) -> None:
    """Each is of a kind that was never measured, and is charged what others cost."""
    process = started(fixed(machine, 25))
    process.tell("[launch(5000, blocks=100 + i) for i in range(100)]; call('cuCtxSynchronize')")
    began = time.monotonic()
    process.heard()
    assert time.monotonic() - began >= 1.2  # of the two seconds that half a second of work costs


def test_a_first_launch_that_fails_is_no_debt(machine: fenced.Machine) -> None:
    """The next one of its kind does not pay for the time since then."""
    process = started(fixed(machine, 10))
    assert process("launch(100, stream=4096)")
    time.sleep(1)  # real time, as the fence's clock is the kernel's: a debt of it would be 10 s
    assert process("took(5, 100)") < 5


def test_capturing_is_not_launching(machine: fenced.Machine) -> None:
    """What is captured does not run, so nobody waits and nothing is counted."""
    tenant = fixed(machine, 1)
    process = started(tenant)
    process("graph(500, 20000)")
    assert tenant.usage().launches == 0


def test_processes_of_a_tenant_share_its_share(machine: fenced.Machine) -> None:
    """Two processes together get no more than one would."""
    tenant = fixed(machine, 25)
    both = [started(tenant), started(tenant)]
    began = time.monotonic()
    for process in both:
        process.tell("took(40, 1000)")
    for process in both:
        process.heard()
    assert time.monotonic() - began >= 78 * 0.004 - MAKE_UP_S


def test_without_a_limit_nobody_waits_and_nothing_is_counted(machine: fenced.Machine) -> None:
    """A share of memory alone leaves time alone."""
    tenant = machine.tenant()
    started(tenant)("took(100, 10)")
    assert (tenant.usage().throttled, tenant.usage().launches) == (0, 0)


def test_best_effort_is_counted_and_never_waits(machine: fenced.Machine) -> None:
    """So that neighbours can see it."""
    tenant = machine.tenant(mode=limits.Mode.BEST_EFFORT)
    started(tenant)("took(100, 100)")
    assert tenant.usage().launches == 100
    assert tenant.usage().busy_ns >= 100 * 90_000


def test_a_burst_uses_the_idle_card_up_to_its_ceiling(machine: fenced.Machine) -> None:
    """With nobody else there, ten times its share; but never more than the ceiling."""
    bursting = machine.tenant(
        mode=limits.Mode.BURST,
        share_millionths=5 * PERCENT,
        ceiling_millionths=50 * PERCENT,
    )
    took_s = started(bursting)("took(200, 1000)")
    assert 199 * 0.002 - MAKE_UP_S <= took_s < 199 * 0.020


def test_a_burst_gives_way_to_a_neighbour(machine: fenced.Machine) -> None:
    """A neighbour with half of the card leaves the other half, however high the ceiling is."""
    bursting = machine.tenant(
        "bursting",
        mode=limits.Mode.BURST,
        share_millionths=20 * PERCENT,
        ceiling_millionths=100 * PERCENT,
    )
    loud, quiet = started(bursting), started(fixed(machine, 50, "steady"))
    loud.tell("took(1200, 1000)")
    quiet("took(200, 1000)")
    assert bursting.usage().throttled > 0
    loud.heard()


def test_a_paused_tenant_launches_nothing_until_it_may_go_on(machine: fenced.Machine) -> None:
    """The pause is for low priority: it ends nothing and loses nothing."""
    tenant = machine.tenant(mode=limits.Mode.BEST_EFFORT)
    process = started(tenant)
    process("took(5, 100)")
    tenants.change(machine.root, tenant.name, limits.Change(paused=True))
    slept = _slept(process)
    process.tell("took(5, 100)")
    sites.eventually(lambda: _slept(process) >= slept + 20)  # and looked whether it may go on
    assert tenant.usage().launches == 5
    tenants.change(machine.root, tenant.name, limits.Change(paused=False))
    process.heard()
    assert tenant.usage().launches == 10


def _slept(process: fenced.Process) -> int:
    """How often it has slept, by the kernel."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(dict(line.split(":\t") for line in lines)["voluntary_ctxt_switches"])


def test_a_new_share_holds_from_the_next_launch_on(machine: fenced.Machine) -> None:
    """Raised and lowered while the program runs; old debt shrinks with a larger share."""
    tenant = fixed(machine, 1)
    process = started(tenant)
    process("took(3, 1000)")
    process("launch(20000)")  # two seconds of debt at one percent
    process("call('cuCtxSynchronize')")
    tenants.change(machine.root, tenant.name, limits.Change(compute_percent=100))
    assert process("took(20, 1000)") < 1.9
    tenants.change(machine.root, tenant.name, limits.Change(compute_percent=10))
    assert process("took(30, 1000)") >= 29 * 0.010 - MAKE_UP_S


def test_two_tenants_of_one_card_are_each_held_to_their_own_share(machine: fenced.Machine) -> None:
    """The card is shared; the shares are not."""
    first, second = fixed(machine, 20, "first"), fixed(machine, 40, "second")
    running = [(started(first), 30, 0.005), (started(second), 60, 0.0025)]
    for process, count, _ in running:
        process.tell(f"took({count}, 1000)")
    for process, count, each_s in running:
        assert process.heard() >= (count - 1) * each_s - MAKE_UP_S


def test_a_neighbour_that_comes_later_is_seen_at_once(machine: fenced.Machine) -> None:
    """Or its work would be taken for one's own: kernels of 1 ms would be charged what two take."""
    first = fixed(machine, 50, "first")
    process = started(first)
    process("took(50, 1000)")
    second = started(fixed(machine, 50, "second"))
    second.tell("took(1000, 1000)")
    sites.eventually(lambda: tenants.running(machine.root, "second"))
    before = first.usage()
    process("took(400, 1000)")
    after = first.usage()
    charged_ns = (after.busy_ns - before.busy_ns) / (after.launches - before.launches)
    assert charged_ns < 1_300_000
    second.heard()


def test_a_launch_that_the_driver_refuses_costs_nothing(machine: fenced.Machine) -> None:
    """Its price is given back."""
    tenant = fixed(machine, 20)
    process = started(tenant)
    process("took(3, 1000)")
    before = tenant.usage().busy_ns
    assert all(process("launch(1000, stream=4096)") for _ in range(10))
    assert tenant.usage().busy_ns < before + 1_000_000
