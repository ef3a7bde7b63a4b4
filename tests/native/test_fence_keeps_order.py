"""An offline tenant waits while an online one has work, goes on afterwards, and loses nothing.

What counts is what the card did for the offline tenant while the online one was busy, not how long
anything took: how soon it stops and goes on is measured by `make bench-fence`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time

from partage.fence.store import layout, limits, seats, tenants
from tests.local import sites
from tests.native import fenced
from tests.native.test_fence_keeps_time import started

BEST_EFFORT = limits.Mode.BEST_EFFORT
MIB = 1 << 20
MS = 1_000_000
STOPS_MS = 60  # of card time; what is measured is 5, and the machine may be busy
NEVER_ALONE_S = 0.02  # between two launches of an online tenant: less than an offline one waits


def free(machine: fenced.Machine, name: str) -> fenced.Tenant:
    """A tenant that is counted and not limited."""
    return machine.tenant(name, mode=BEST_EFFORT)


def yields(machine: fenced.Machine, tenant: fenced.Tenant, *others: fenced.Tenant) -> None:
    """One is offline, the others online, as the node side writes it."""
    [card] = tenants.read(machine.root, tenant.name).limits.cards
    taken = (tenants.read(machine.root, other.name).seats[0] for other in others)
    order = limits.Time(mode=BEST_EFFORT, yields_to=frozenset(map(limits.place, taken)))
    tenants.set_time(machine.root, tenant.name, {card.uuid: order})


def busy_ms(tenant: fenced.Tenant) -> float:
    """What the card did for a tenant."""
    return tenant.usage().busy_ns / MS


def test_offline_stops_while_online_works_and_then_goes_on(machine: fenced.Machine) -> None:
    """Both want the card for longer than the other one lets them."""
    online, offline = free(machine, "online"), free(machine, "offline")
    yields(machine, offline, online)
    first, last = started(online), started(offline)
    first("took(3, 1000)")
    last("took(20, 1000)")
    last.tell("took(400, 1000)")
    sites.eventually(lambda: busy_ms(offline) > 60)
    first.tell("took(400, 1000)")
    sites.eventually(lambda: busy_ms(online) > 20)
    before = busy_ms(offline)
    first.heard()
    assert busy_ms(offline) - before < STOPS_MS
    last.heard()
    assert offline.usage().launches == 420
    assert offline.usage().throttled > 0


def test_a_pause_between_two_launches_is_no_end(machine: fenced.Machine) -> None:
    """A model that answers every 20 ms has the card for itself."""
    online, offline = free(machine, "online"), free(machine, "offline")
    yields(machine, offline, online)
    first, last = started(online), started(offline)
    first("took(3, 100)")
    last("took(20, 1000)")
    first.tell(f"[(took(1, 100), time.sleep({NEVER_ALONE_S})) for _ in range(40)] and None")
    sites.eventually(lambda: online.usage().launches > 5)
    before = busy_ms(offline)
    last.tell("took(10, 1000)")
    first.heard()
    assert busy_ms(offline) - before < 10
    last.heard()


def test_an_online_tenant_that_was_killed_is_not_waited_for(machine: fenced.Machine) -> None:
    """Its last word was that it works."""
    online, offline = free(machine, "online"), free(machine, "offline")
    yields(machine, offline, online)
    first, last = started(online), started(offline)
    first("took(3, 1000)")
    first.tell("took(2000, 1000)")
    sites.eventually(lambda: busy_ms(online) > 50)
    first.kill()
    assert last("took(20, 1000)") < 30


def test_tenants_that_do_not_go_first_are_not_waited_for(machine: fenced.Machine) -> None:
    """Whatever their seats say: who is online is told by limits, which are not theirs to write."""
    online, offline = free(machine, "online"), free(machine, "offline")
    liar = free(machine, "liar")
    yields(machine, offline, online)
    last, other = started(offline), started(liar)
    last("took(3, 1000)")
    other.tell("[took(1, 1000) for _ in range(1000)] and None")
    sites.eventually(lambda: busy_ms(liar) > 20)
    last("took(50, 1000)")
    assert not other.answers(), "the other tenant was done before: nothing was seen"
    other.heard()


def test_a_seat_that_tells_of_work_for_ever_is_not_believed_for_ever(
    machine: fenced.Machine,
) -> None:
    """What an online tenant claims ends with the time that anybody can know of."""
    online, offline = free(machine, "online"), free(machine, "offline")
    yields(machine, offline, online)
    tenant = tenants.read(machine.root, online.name)
    path = seats.path(machine.root, tenant.limits.cards[0].uuid, tenant.seats[0])
    descriptor = os.open(path, os.O_RDWR)
    with mmap.mmap(descriptor, ctypes.sizeof(layout.Seat)) as mapped:
        seat = layout.Seat.from_buffer(mapped)
        seat.charged_ns = 1 << 60
        seat.active_until_ns = time.monotonic_ns() + (1 << 60)
        del seat
    os.close(descriptor)
    assert started(offline)("took(20, 1000)") < 30


def test_an_offline_tenant_that_spoils_its_own_seat_waits_all_the_same(
    machine: fenced.Machine,
) -> None:
    """It is not seen by others any more, but it sees those who go first."""
    online, offline = free(machine, "online"), free(machine, "offline")
    yields(machine, offline, online)
    tenant = tenants.read(machine.root, offline.name)
    os.truncate(seats.path(machine.root, tenant.limits.cards[0].uuid, tenant.seats[0]), 0)
    first, last = started(online), started(offline)
    first("took(3, 1000)")
    first.tell("[took(1, 1000) for _ in range(400)] and None")
    sites.eventually(lambda: busy_ms(online) > 20)
    last.tell("took(3, 1000)")
    first.heard()
    assert not offline.usage().launches
    last.heard()


def test_memory_of_a_tenant_that_waits_is_its_own(machine: fenced.Machine) -> None:
    """It can allocate, and what it has stays."""
    online, offline = free(machine, "online"), free(machine, "offline")
    yields(machine, offline, online)
    first, last, holder = started(online), started(offline), started(offline)
    first("took(3, 1000)")
    last("took(3, 1000)")
    holder(f"alloc({100 * MIB})")
    before = offline.usage()
    first.tell("took(400, 1000)")
    sites.eventually(lambda: busy_ms(online) > 20)
    last.tell("took(200, 1000)")
    holder(f"alloc({100 * MIB})")
    assert offline.usage().used_bytes == before.used_bytes + 100 * MIB
    first.heard()
    last.heard()
    assert offline.usage().used_bytes == before.used_bytes + 100 * MIB


def test_the_order_ends_while_programs_run(machine: fenced.Machine) -> None:
    """The class of a pod, or its neighbour, may be another one from now on."""
    online, offline = free(machine, "online"), free(machine, "offline")
    yields(machine, offline, online)
    first, last = started(online), started(offline)
    first("took(3, 1000)")
    last("took(3, 1000)")
    first.tell("took(1500, 1000)")
    sites.eventually(lambda: busy_ms(online) > 20)
    last.tell("took(20, 1000)")
    yields(machine, offline)
    last.heard()
    assert not first.answers(), "the online tenant was done before: nothing was seen"
    first.heard()
