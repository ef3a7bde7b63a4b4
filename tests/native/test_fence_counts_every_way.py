"""Every way to take memory is counted, every way to give it back is credited: the driver agrees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native import fenced, ways
from tests.native.fenced import CONTEXT_BYTES, GIB, MIB, OUT_OF_MEMORY

SIZE = 32 * MIB


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[fenced.Machine]:
    """A machine with two cards, so that a second primary context can be had."""
    with fenced.machine(tmp_path, "2x16GiB") as made:
        yield made


@pytest.fixture
def tenant(machine: fenced.Machine) -> fenced.Tenant:
    """A tenant with a GiB of both."""
    return machine.tenant(cards=(0, 1))


@pytest.fixture
def process(tenant: fenced.Tenant) -> fenced.Process:
    """A program with a context."""
    return tenant.started()


class Accounts:
    """What the driver has for a process and what the fence counts, over both cards."""

    def __init__(self, tenant: fenced.Tenant, process: fenced.Process) -> None:
        self.tenant, self.pid = tenant, process.pid

    def truth(self) -> int:
        """As the driver knows it."""
        return sum(self.tenant.machine.truth(card).get(self.pid, 0) for card in (0, 1))

    def counted(self) -> int:
        """As the fence counts it."""
        return sum(self.tenant.counted(card)[self.pid] for card in (0, 1))

    def agreed(self) -> int:
        """Both, which must be the same."""
        assert self.counted() == self.truth()
        return self.truth()


@pytest.mark.parametrize("way", [*ways.WAYS, *ways.CONTEXTS])
def test_what_is_taken_is_counted_and_what_is_given_back_is_credited(
    way: str, tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """The count of a process is what the driver has for it, before, meanwhile and after."""
    accounts = Accounts(tenant, process)
    before = accounts.agreed()
    assert before == CONTEXT_BYTES

    for _ in range(2):
        process(f"take({way!r}, {SIZE})")
        assert accounts.agreed() >= before + SIZE
        process("give_back()")
        assert accounts.agreed() == before


def needed(way: str) -> int:
    """How much one must have of a card for it; primary contexts are taken of the second one."""
    contexts = 2 if way in ways.CONTEXTS and "Primary" not in way else 1
    return contexts * CONTEXT_BYTES + SIZE


@pytest.mark.parametrize("way", [*ways.WAYS, *ways.CONTEXTS])
def test_at_the_quota_it_is_out_of_memory_and_nothing_leaks(
    way: str, tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Whatever does not fit is refused with error 2, again and again, until there is room."""
    accounts = Accounts(tenant, process)
    before = accounts.agreed()
    tenant.change(memory_bytes=needed(way) - 4 * MIB)

    for _ in range(3):
        assert process.code(f"take({way!r}, {SIZE})") == OUT_OF_MEMORY
        assert accounts.agreed() == before

    tenant.change(memory_bytes=4 * GIB)
    process(f"take({way!r}, {SIZE})")
    process("give_back()")
    assert accounts.agreed() == before


@pytest.mark.parametrize("way", ways.UNCOUNTED)
def test_what_is_not_the_cards_is_not_counted(
    way: str, tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """Memory of the host, and addresses without memory, cost nothing of the quota."""
    tenant.change(memory_bytes=CONTEXT_BYTES)
    process(f"take({way!r}, {SIZE})")
    assert Accounts(tenant, process).agreed() == CONTEXT_BYTES
    process("give_back()")
    assert Accounts(tenant, process).agreed() == CONTEXT_BYTES
