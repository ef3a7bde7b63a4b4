"""Tenants: made in one step and removed in one step, whoever is killed or races meanwhile."""

from __future__ import annotations

import functools
import itertools
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings

from partage.core import errors
from partage.fence.store import (
    layout,
    limits,
    limits_file,
    locks,
    roots,
    seats,
    shared_files,
    tenants,
)
from tests.fence import child_processes, small_limits, strategies


def check(root: roots.Root, name: str) -> None:
    """All that a process of the tenant needs is there."""
    tenant = tenants.read(root, name)
    shared_files.read(tenant.region_path, layout.Region)
    for index, card in enumerate(tenant.limits.cards):
        own = tenant.folder / f"seats-{index}" / str(tenant.seats[index])
        assert bytes(shared_files.read(own, layout.Seat).uuid) == card.raw_uuid


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None
)
@given(requested=strategies.all_limits())
def test_what_is_read_is_what_was_asked_for(root: roots.Root, requested: limits.Limits) -> None:
    """All limits survive the way through the file, and the gate is open when it has to be."""
    tenants.create(root, "job", requested)
    try:
        raw = shared_files.read(root.tenants / "job" / "limits", layout.Limits)
        assert tenants.read(root, "job").limits == requested
        assert raw.gate == requested.gated
        assert raw.cards == len(requested.cards)
        assert limits_file.seats(raw) == (0,) * len(requested.cards)
    finally:
        tenants.remove(root, "job")


def test_a_tenant_has_all_it_needs(root: roots.Root) -> None:
    """Limits, region, and a seat at each card in the order of its limits."""
    tenant = tenants.create(root, "job", small_limits.share(3, 1))

    assert sorted(path.name for path in tenant.folder.iterdir()) == [
        *("limits", "region", "seats-0", "seats-1")
    ]
    assert seats.linked(tenant.folder) == (small_limits.uuid(3), small_limits.uuid(1))
    check(root, "job")
    assert tenants.read(root, "job") == tenant


def test_a_name_is_used_once(root: roots.Root) -> None:
    """The tenant that has it stays as it is."""
    before = tenants.create(root, "job", small_limits.share(1))

    with pytest.raises(errors.FenceError, match="tenant job already exists"):
        tenants.create(root, "job", small_limits.share(2))
    assert tenants.read(root, "job") == before


@pytest.mark.parametrize("name", ["", ".", "..", ".x", "a/b", "../x", "a b", "ä", "x" * 129])
def test_a_name_cannot_lead_elsewhere(root: roots.Root, name: str) -> None:
    """It is the name of one folder."""
    for action in (
        lambda: tenants.create(root, name, small_limits.share(1)),
        lambda: tenants.read(root, name),
        lambda: tenants.remove(root, name),
    ):
        with pytest.raises(errors.InputError, match="is not a valid name of a tenant"):
            action()


def test_who_is_not_there_is_told_with_those_who_are(root: roots.Root) -> None:
    """A slip of the pen is seen at once."""
    tenants.create(root, "job-17", small_limits.share(1))

    with pytest.raises(errors.InputError, match=r"no tenant job-71 under .*; choose one of job-17"):
        tenants.read(root, "job-71")


def test_a_tenant_is_not_removed_while_a_process_lives(root: roots.Root) -> None:
    """Its seat would be given to somebody else; force is for those who know better."""
    tenant = tenants.create(root, "job", small_limits.share(1))
    with tenant.region_path.open("r+b") as region:
        assert locks.take(region.fileno(), 700)
        with pytest.raises(errors.FenceError, match="1 processes of tenant job still use CUDA"):
            tenants.remove(root, "job")
        tenants.remove(root, "job", force=True)
    assert tenants.names(root) == []


def test_a_failure_leaves_nothing_behind(root: roots.Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a tenant nor a seat; the next one is made as if nothing had been."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fchown", fail)
        with pytest.raises(OSError, match="No space"):
            tenants.create(root, "job", small_limits.share(1))
    assert tenants.names(root) == []
    assert tenants.create(root, "job", small_limits.share(1)).seats == (0,)
    assert not root.scratch.exists()


def killed_at(step: int, action: Callable[[], object]) -> bool:
    """Do it in a child that is killed (kill -9) before its n-th step; False: it came to its end.

    A step is whatever Python tells its audit hooks: every opening, renaming, linking and removing.
    """
    left = itertools.count(step, -1)

    def count(*_: object) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watched() -> None:
        sys.addaudithook(count)
        action()

    ended = child_processes.run(watched)
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


def test_a_killed_maker_leaves_no_half_made_tenant(root: roots.Root) -> None:
    """Killed at any step: the tenant is whole or not there, and the next one can be made."""
    for step in itertools.count(1):
        name = f"job-{step}"
        killed = killed_at(
            step, functools.partial(tenants.create, root, name, small_limits.share(1, 2))
        )
        if name in tenants.names(root):
            check(root, name)
            tenants.remove(root, name)
        tenants.create(root, "after", small_limits.share(1, 2))
        tenants.remove(root, "after")
        assert sorted(path.name for path in root.path.iterdir()) == ["lock", "seats", "tenants"]
        if not killed:
            break
    assert step > 20


def test_a_killed_remover_leaves_no_half_removed_tenant(root: roots.Root) -> None:
    """The same on the way out."""
    for step in itertools.count(1):
        tenants.create(root, "job", small_limits.share(1, 2))
        killed = killed_at(step, lambda: tenants.remove(root, "job"))
        if "job" in tenants.names(root):
            check(root, "job")
            tenants.remove(root, "job")
        tenants.create(root, "after", small_limits.share(1, 2))
        tenants.remove(root, "after")
        assert not root.scratch.exists()
        if not killed:
            break
    assert step > 10


def test_a_killed_founder_leaves_a_root_that_can_be_finished(tmp_path: pathlib.Path) -> None:
    """Killed at any step of making the root itself."""
    for step in itertools.count(1):
        path = tmp_path / f"root-{step}"
        killed = killed_at(step, functools.partial(roots.prepare, path))
        tenants.create(roots.prepare(path), "job", small_limits.share(1))
        if not killed:
            break
    assert step > 5


def test_makers_that_race_do_not_disturb_each_other(root: roots.Root) -> None:
    """Four processes make the same ten tenants: each is made once, by one of them."""
    script = """
import pathlib, sys
from partage.core import errors
from partage.fence.store import roots, tenants
from tests.fence import small_limits
root = roots.prepare(pathlib.Path(sys.argv[1]))
made = 0
for number in range(10):
    try:
        tenants.create(root, f"job-{number}", small_limits.share(number % 2, 7))
        made += 1
    except errors.FenceError as error:
        assert "already" in str(error), error
print(made)
"""
    line = [sys.executable, "-c", script, str(root.path)]
    folder = pathlib.Path(__file__).parents[2]
    makers = [subprocess.Popen(line, stdout=subprocess.PIPE, cwd=folder) for _ in range(4)]
    made = [int(maker.communicate(timeout=60)[0]) for maker in makers]

    assert sum(made) == 10
    for name in tenants.names(root):
        check(root, name)
    seats = [tenants.read(root, name).seats[1] for name in tenants.names(root)]
    assert sorted(seats) == list(range(10))
