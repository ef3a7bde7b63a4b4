"""Usage: what is read from a region that its tenant, or nobody sane, wrote."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partage.fence import usage
from partage.fence.store import layout, limits, locks, roots, shared_files, tenants
from tests.fence import small_limits

HOLDER = """
import os, sys
from partage.fence.store import locks
fd = os.open(sys.argv[1], os.O_RDWR)
assert locks.take(fd, int(sys.argv[2]))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def tenant(root: roots.Root) -> tenants.Tenant:
    """A tenant of two cards."""
    return tenants.create(root, "job", small_limits.share(1, 2))


def fill(tenant: tenants.Tenant, slots: dict[int, tuple[int, int]]) -> None:
    """Write what each slot uses of both cards, and the rest of what can be counted."""
    with shared_files.mapped(tenant.region_path, layout.Region) as region:
        region.slots_used = max(slots, default=-1) + 1
        for slot, used in slots.items():
            region.slot[slot].pid = 1000 + slot
            for card, used_bytes in enumerate(used):
                region.used_bytes[card][slot] = used_bytes
        counted = region.card[1]
        counted.peak_bytes, counted.refused, counted.throttled = 9 * small_limits.GIB, 3, 4
        counted.throttled_ns, counted.launches, counted.busy_ns = 5, 6, 7


def test_the_living_are_counted_and_the_dead_are_not(
    root: roots.Root, tenant: tenants.Tenant
) -> None:
    """Slots 0 and 2 live; 1 was killed and could not clean up."""
    fill(tenant, {0: (10, 0), 1: (700, 700), 2: (5, 1)})
    with tenant.region_path.open("r+b") as first, tenant.region_path.open("r+b") as second:
        assert locks.take(first.fileno(), 0)
        assert locks.take(second.fileno(), 2)
        snapshot = usage.snapshot(root, "job")

    assert snapshot.processes == (
        usage.ProcessUsage(1000, (10, 0)),
        usage.ProcessUsage(1002, (5, 1)),
    )
    assert [card.used_bytes for card in snapshot.cards] == [15, 1]
    assert usage.snapshot(root, "job").processes == ()


def test_a_killed_process_counts_nothing_at_once(root: roots.Root, tenant: tenants.Tenant) -> None:
    """The kernel gives its lock back; nobody has to notice."""
    fill(tenant, {0: (10, 0)})
    line = [sys.executable, "-c", HOLDER, str(tenant.region_path), "0"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        assert usage.snapshot(root, "job").cards[0].used_bytes == 10
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert usage.snapshot(root, "job").cards[0].used_bytes == 0


def test_all_counters_are_told(root: roots.Root, tenant: tenants.Tenant) -> None:
    """Beside the limits they belong to."""
    fill(tenant, {})
    tenants.change(root, "job", limits.Change(compute_percent=30, ceiling_percent=80))

    card = usage.snapshot(root, "job").cards[1]

    assert card == usage.CardUsage(
        uuid=small_limits.uuid(2),
        quota_bytes=2 * small_limits.GIB,
        used_bytes=0,
        peak_bytes=9 * small_limits.GIB,
        refused=3,
        mode=limits.Mode.BURST,
        share_millionths=300_000,
        ceiling_millionths=800_000,
        paused=False,
        throttled=4,
        throttled_ns=5,
        launches=6,
        busy_ns=7,
    )


def test_without_a_quota_there_is_none_to_tell(root: roots.Root) -> None:
    """Not a number with twenty digits."""
    tenants.create(root, "free", small_limits.share(1, memory_bytes=limits.NO_QUOTA))

    assert usage.snapshot(root, "free").cards[0].quota_bytes is None


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(
    places=st.lists(
        st.tuples(st.integers(16, layout.Region.used_bytes.offset + 4096), st.binary(max_size=64)),
        max_size=8,
    )
)
def test_nothing_a_tenant_writes_makes_reading_fail(
    root: roots.Root, places: list[tuple[int, bytes]]
) -> None:
    """Any bytes behind the header give a usage that can be printed."""
    name = "liar"
    if name not in tenants.names(root):
        tenants.create(root, name, small_limits.share(1, 2))
    region = root.tenants / name / "region"
    with region.open("r+b") as file, region.open("r+b") as living:
        locks.take(living.fileno(), 0)
        locks.take(living.fileno(), 3)
        for offset, content in places:
            os.pwrite(file.fileno(), content, offset)
        snapshot = usage.snapshot(root, name)
        assert msgspec.json.encode(snapshot)
        assert len(snapshot.cards) == 2


def test_a_sum_that_nobody_could_print_is_capped(root: roots.Root, tenant: tenants.Tenant) -> None:
    """Two slots that claim all there is."""
    fill(tenant, {0: (limits.NO_QUOTA, 0), 1: (limits.NO_QUOTA, 0)})
    with tenant.region_path.open("r+b") as living:
        assert locks.take(living.fileno(), 0)
        assert locks.take(living.fileno(), 1)
        assert usage.snapshot(root, "job").cards[0].used_bytes == limits.NO_QUOTA


def test_a_slot_beyond_the_last_is_not_looked_for(root: roots.Root, tenant: tenants.Tenant) -> None:
    """A count that is out of range ends at the number of slots."""
    with shared_files.mapped(tenant.region_path, layout.Region) as region:
        region.slots_used = 0xFFFFFFFF
    with tenant.region_path.open("r+b") as living:
        assert locks.take(living.fileno(), layout.SLOTS - 1)
        assert len(usage.snapshot(root, "job").processes) == 1


def test_a_lock_is_had_by_one_open_file(tmp_path: pathlib.Path) -> None:
    """Another one is refused it, and the one that has it does not see itself."""
    path = tmp_path / "region"
    path.touch()
    with path.open("r+b") as first, path.open("r+b") as second, path.open("rb") as reader:
        assert locks.take(first.fileno(), 5)
        assert not locks.held(first.fileno(), 5)
        assert locks.held(reader.fileno(), 5)
        assert locks.held(reader.fileno(), 0, count=10)
        assert not locks.held(reader.fileno(), 4)
        assert not locks.take(second.fileno(), 5)
