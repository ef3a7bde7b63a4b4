"""Changes: seen by processes that have the limits mapped, whole and in the right order."""

from __future__ import annotations

import mmap
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partage.core import errors
from partage.fence.store import layout, limits, limits_file, roots, shared_files, tenants
from tests import leaving_out
from tests.fence import child_processes, small_limits, strategies

WATCHER = """
import ctypes, mmap, sys
from partage.fence.store import layout
with open(sys.argv[1], "rb") as file:
    seen = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
offset = layout.Limits.card.offset + layout.LimitsCard.memory_bytes.offset
word = memoryview(seen)[offset:offset + 8].cast("Q")
print("ready", flush=True)
values = set()
while (value := word[0]) != 7:
    values.add(value)
print(*values)
"""


@pytest.fixture
def tenant(root: roots.Root) -> tenants.Tenant:
    """A tenant of two cards."""
    return tenants.create(root, "job", small_limits.share(1, 2))


def test_a_change_reaches_a_mapping_that_is_already_there(
    root: roots.Root, tenant: tenants.Tenant
) -> None:
    """The file stays the same: nothing is renamed over it."""
    with tenant.limits_path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)

    tenants.change(root, "job", limits.Change(memory_bytes=5 * small_limits.GIB, paused=True))

    seen = layout.Limits.from_buffer_copy(mapping)
    assert [seen.card[i].memory_bytes for i in (0, 1)] == [5 * small_limits.GIB] * 2
    assert [seen.card[i].paused for i in (0, 1)] == [1, 1]
    assert seen.gate == 1


def test_a_change_can_be_for_one_card(root: roots.Root, tenant: tenants.Tenant) -> None:
    """The other keeps what it has."""
    after = tenants.change(
        root, "job", limits.Change(memory_bytes=small_limits.GIB), uuid=small_limits.uuid(2)
    )

    assert [card.memory_bytes for card in after.limits.cards] == [
        2 * small_limits.GIB,
        small_limits.GIB,
    ]
    with pytest.raises(errors.InputError, match=r"tenant job has no card .*; name one of GPU-"):
        tenants.change(root, "job", limits.Change(paused=True), uuid=small_limits.uuid(3))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(changes=st.lists(strategies.changes(), max_size=6))
def test_the_gate_is_open_exactly_while_something_is_limited(
    root: roots.Root, changes: list[limits.Change]
) -> None:
    """After any changes; one that is refused changes nothing."""
    tenants.create(root, "many", small_limits.share(1, 2))
    try:
        for change in changes:
            before = tenants.read(root, "many").limits
            try:
                expected = tuple(limits.changed(card, change) for card in before.cards)
            except errors.InputError:
                with pytest.raises(errors.InputError):
                    tenants.change(root, "many", change)
                expected = before.cards
            else:
                tenants.change(root, "many", change)
            after = tenants.read(root, "many").limits
            raw = shared_files.read(root.tenants / "many" / "limits", layout.Limits)
            assert after.cards == expected
            assert raw.gate == after.gated
    finally:
        tenants.remove(root, "many")


def test_a_mode_is_never_seen_without_its_share_nor_a_limit_behind_a_closed_gate() -> None:
    """At every store between two limits, in the order in which they are made."""
    free = limits.CardLimits(uuid=small_limits.uuid(1))
    fixed = limits.changed(free, limits.Change(compute_percent=30))
    burst = limits.changed(fixed, limits.Change(ceiling_percent=80, paused=True))
    values = [limits.Limits((card,)) for card in (free, fixed, burst)]
    for before in values:
        for after in values:
            raw = limits_file.new(before, (0,))
            for seen in _stores(raw, after):
                limited = seen.card[0].mode in (layout.MODE_FIXED, layout.MODE_BURST)
                assert not limited or seen.card[0].share
                assert seen.gate or not (limited or seen.card[0].paused)


def _stores(raw: layout.Limits, after: limits.Limits) -> list[layout.Limits]:
    """What another process could see: the file after each line of the storing code."""
    seen: list[layout.Limits] = []

    def look(*_: object) -> Callable[..., Any]:
        seen.append(layout.Limits.from_buffer_copy(raw))
        return look

    sys.settrace(look)
    try:
        limits_file.store(raw, after)
    finally:
        sys.settrace(None)
    return seen


def test_a_word_is_seen_whole(root: roots.Root, tenant: tenants.Tenant) -> None:
    """A process that reads all the time sees old or new values, never a mixture."""
    first, second = 0x1111111111111111, 0x2222222222222222
    line = [sys.executable, "-c", WATCHER, str(tenant.limits_path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == b"ready\n"
        with shared_files.mapped(tenant.limits_path, layout.Limits) as raw:
            card = raw.card[0]
            for _ in range(200_000):
                card.memory_bytes = first
                card.memory_bytes = second
            card.memory_bytes = 7
        values = {int(value) for value in watcher.stdout.read().split()}
    assert values <= {2 * small_limits.GIB, first, second}


def test_changes_that_race_are_made_one_after_another(
    root: roots.Root, tenant: tenants.Tenant
) -> None:
    """Two who pause and resume, and one who limits: the gate still says what holds."""

    def repeat(*changes: limits.Change) -> None:
        for change in changes * 30:
            tenants.change(root, "job", change)

    pausing = (limits.Change(paused=True), limits.Change(paused=False))
    limiting = (limits.Change(compute_percent=20), limits.Change(compute_percent=0))
    threads = [
        threading.Thread(target=repeat, args=changes) for changes in (pausing, pausing, limiting)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    raw = shared_files.read(tenant.limits_path, layout.Limits)
    assert raw.gate == tenants.read(root, "job").limits.gated == 0


def test_a_tenant_keeps_its_cards(root: roots.Root, tenant: tenants.Tenant) -> None:
    """New limits for other cards are refused: the seats belong to the old ones."""
    with pytest.raises(errors.FenceError, match="a tenant keeps its cards"):
        tenants.replace(root, "job", small_limits.share(2, 1))
    assert tenants.read(root, "job") == tenant


@leaving_out.needs_root  # only root can become somebody else
def test_who_may_not_write_is_told(open_path: pathlib.Path) -> None:
    """Another user than root and the owner can look, and cannot change."""
    open_path.chmod(0o755)
    root = roots.prepare(open_path / "root")
    tenants.create(root, "job", small_limits.share(1))

    def change() -> None:
        assert tenants.read(root, "job").limits == small_limits.share(1)
        with pytest.raises(
            errors.FenceError, match=r"this user may not change .*; do it as its owner"
        ):
            tenants.change(root, "job", limits.Change(paused=True))

    assert child_processes.run(change, user=(65534, 65534)) == 0
