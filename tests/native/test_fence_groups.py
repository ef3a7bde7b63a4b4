"""Groups: some of a tenant's processes have less than it has, and all together no more."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from partage.fence import groups, usage
from partage.fence.store import layout, limits, shared_files, tenants
from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, MIB, NOT_PERMITTED, OUT_OF_MEMORY

PERCENT = 10_000  # in millionths
MAKE_UP_S = 0.05
FREE_AND_TOTAL = "memory_info()"
RACE = """
for _ in range(400):
    try:
        free(alloc(60 * MIB))
    except Exception:
        pass
"""


class Group:
    """A group of a tenant, with files where its programs find them."""

    def __init__(self, tenant: fenced.Tenant, number: int, mib: int, percent: int = 0) -> None:
        self.tenant = tenant
        self.number = number
        self.folder = tenant.folder.parent.parent / f"view-{number}"
        self.folder.mkdir()
        for name in ("limits", "region", "seats-0"):
            (self.folder / name).symlink_to(tenant.folder / name)
        content = shared_files.blank(layout.GroupLimits)
        content.number = number
        content.card[0].memory_bytes, content.card[0].share = mib * MIB, percent * PERCENT
        own, region = (
            path(tenant.folder, number) for path in (groups.limits_path, groups.region_path)
        )
        shared_files.write(own, content, mode=0o644)
        shared_files.write(region, shared_files.blank(layout.GroupRegion), mode=0o600)
        (self.folder / "group-limits").symlink_to(own)
        (self.folder / "group-region").symlink_to(region)

    def start(self) -> fenced.Process:
        """A program of the group."""
        where = {"PARTAGE_LIMITS": str(self.folder / "limits")}
        return self.tenant.machine.start({**self.tenant.environment, **where})

    def started(self) -> fenced.Process:
        """The same, with a context."""
        process = self.start()
        process("context(0)")
        return process

    def read(self) -> groups.GroupCard:
        """What the node side reads of it."""
        tenant = tenants.read(self.tenant.machine.root, self.tenant.name)
        read = groups.of_tenant(tenant, usage.counted(tenant))
        return next(group.cards[0] for group in read if group.number == self.number)


def test_a_group_is_held_to_its_own_quota_to_the_byte(tenant: fenced.Tenant) -> None:
    """Two programs of it together; the rest of the tenant goes on."""
    group = Group(tenant, 1, 700)
    one, two, other = group.started(), group.started(), tenant.started()
    room = 700 * MIB - 2 * CONTEXT_BYTES
    assert one.code(f"alloc({room // 2})") == 0
    assert two.code(f"alloc({room - room // 2})") == 0
    assert one.code("alloc(1)") == two.code("alloc(1)") == OUT_OF_MEMORY
    assert other.code("alloc(16 * MIB)") == 0
    card = group.read()
    assert (card.quota_bytes, card.used_bytes, card.peak_bytes) == (700 * MIB,) * 3
    assert (card.refused, tenant.usage().refused) == (2, 2)
    assert tenant.usage().used_bytes == 700 * MIB + CONTEXT_BYTES + 16 * MIB


def test_groups_together_have_no_more_than_their_tenant(tenant: fenced.Tenant) -> None:
    """Each could have more by its own quota."""
    one, two = Group(tenant, 1, 768).started(), Group(tenant, 2, 768).started()
    assert one.code(f"alloc({768 * MIB - CONTEXT_BYTES})") == 0
    assert two.code("alloc(1)") == OUT_OF_MEMORY  # the tenant has a GiB, and its context is there
    one.kill()
    assert two.code(f"alloc({768 * MIB - CONTEXT_BYTES})") == 0


def test_a_group_with_more_than_its_tenant_has_what_the_tenant_has(tenant: fenced.Tenant) -> None:
    """The smaller of the two holds, and is what the program sees."""
    group = Group(tenant, 1, 4096)
    process = group.started()
    assert process("total_memory(0)") == GIB
    assert process.code("alloc(GIB)") == OUT_OF_MEMORY
    assert process.code(f"alloc({GIB - CONTEXT_BYTES})") == 0
    assert group.read().quota_bytes == GIB


def test_a_group_sees_its_share_as_the_card(tenant: fenced.Tenant) -> None:
    """Free is what it could have: less where the others of the tenant have taken it."""
    process, other = Group(tenant, 1, 512).started(), tenant.started()
    assert process(FREE_AND_TOTAL) == [256 * MIB, 512 * MIB]
    assert other(FREE_AND_TOTAL) == [512 * MIB, GIB]
    other("alloc(400 * MIB)")
    assert process(FREE_AND_TOTAL) == [112 * MIB, 512 * MIB]
    assert process.code("alloc(113 * MIB)") == OUT_OF_MEMORY
    assert process.code("alloc(112 * MIB)") == 0


def test_what_the_dead_of_a_group_had_is_free_again(tenant: fenced.Tenant) -> None:
    """For the group and for the tenant."""
    group = Group(tenant, 1, 600)
    dead = group.started()
    dead("alloc(300 * MIB)")
    dead.kill()
    process = group.started()
    assert process.code("alloc(300 * MIB)") == 0
    assert group.read().used_bytes == 300 * MIB + CONTEXT_BYTES


def test_a_slot_of_one_group_is_not_the_next_ones(tenant: fenced.Tenant) -> None:
    """A slot that is used again counts for the group of its new process."""
    first, second = Group(tenant, 1, 600), Group(tenant, 2, 600)
    first.started().kill()
    process = second.started()
    assert (first.read().used_bytes, second.read().used_bytes) == (0, CONTEXT_BYTES)
    assert process.code(f"alloc({600 * MIB - CONTEXT_BYTES})") == 0


def test_programs_that_race_never_take_more_than_their_group_has(machine: fenced.Machine) -> None:
    """Two groups of four programs each take and give back; the peaks say what was had at once."""
    tenant = machine.tenant(memory_bytes=4 * GIB, context_bytes=CONTEXT_BYTES)
    made = [Group(tenant, 1, 1200), Group(tenant, 2, 1500)]
    racers = [group.started() for group in made for _ in range(4)]
    for racer in racers:
        racer.tell(f"exec({RACE!r}, globals())")
    for racer in racers:
        racer.heard()
    for group, mib in zip(made, (1200, 1500), strict=True):
        card = group.read()
        assert 4 * CONTEXT_BYTES < card.peak_bytes <= mib * MIB
        assert card.used_bytes == 4 * CONTEXT_BYTES
    assert tenant.usage().peak_bytes <= 2700 * MIB


def fixed(machine: fenced.Machine, percent: int) -> fenced.Tenant:
    """A tenant with so much of the card's time and no more."""
    return machine.tenant(
        memory_bytes=2 * GIB, mode=limits.Mode.FIXED, share_millionths=percent * PERCENT
    )


def test_a_group_has_no_more_of_the_time_than_its_share(machine: fenced.Machine) -> None:
    """60 ms of work take 300 ms of a group with a fifth of the card, in a tenant with a half."""
    tenant = fixed(machine, 50)
    process = Group(tenant, 1, 1024, percent=20).started()
    process("from timed_kernels import *")
    assert process("took(60, 1000)") >= 59 * 0.005 - MAKE_UP_S


def test_groups_together_have_no_more_of_the_time_than_their_tenant(
    machine: fenced.Machine,
) -> None:
    """Each has a fifth, and the tenant a quarter."""
    tenant = fixed(machine, 25)
    both = [Group(tenant, number, 800, percent=20).started() for number in (1, 2)]
    for process in both:
        process("from timed_kernels import *")
    began = time.monotonic()
    for process in both:
        process.tell("took(40, 1000)")
    for process in both:
        process.heard()
    assert time.monotonic() - began >= 78 * 0.004 - MAKE_UP_S


def _is_refused(group: Group, reason: str) -> None:
    process = group.start()
    assert process.code("context(0)") == NOT_PERMITTED
    process.running.stdin.close()  # type: ignore[union-attr]
    assert reason in process.running.stderr.read().decode()  # type: ignore[union-attr]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_cut, "is of another version of Partage"),
        (lambda path: path.chmod(0o666), "could have been written by somebody else"),
        (lambda path: path.write_bytes(b"x" * 280), "is not the file that its name says"),
    ],
)
def test_limits_of_a_group_that_are_not_right_give_nothing(
    tenant: fenced.Tenant, damage: object, reason: str
) -> None:
    """Closed, never the tenant's quota instead."""
    group = Group(tenant, 1, 600)
    damage(groups.limits_path(tenant.folder, 1))  # type: ignore[operator]
    _is_refused(group, reason)


def test_a_group_without_its_region_gives_nothing(tenant: fenced.Tenant) -> None:
    """Its peak and its time could not be counted."""
    group = Group(tenant, 1, 600)
    groups.region_path(tenant.folder, 1).unlink()
    _is_refused(group, "cannot be opened for writing")


def test_an_empty_file_means_no_group(tenant: fenced.Tenant) -> None:
    """So it is at the fixed place, where nothing is mounted over it."""
    group = Group(tenant, 1, 600)
    groups.limits_path(tenant.folder, 1).write_bytes(b"")
    assert group.started()("total_memory(0)") == GIB
    tenant_read = tenants.read(tenant.machine.root, tenant.name)
    assert groups.of_tenant(tenant_read, usage.counted(tenant_read)) == ()
