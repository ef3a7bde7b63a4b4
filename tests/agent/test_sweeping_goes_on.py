"""What cannot be swept away, or somebody else swept, ends neither the sweep nor the agent."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from partage.agent.containers import cdi, cleanup, container_fence
from partage.fence.store import layout, roots, seats, tenants
from tests.agent import agent_node
from tests.agent.agent_node import MEMORY
from tests.agent.test_containers_are_started import P0, Bench

P1 = frozenset({"p1"})


@pytest.fixture
def bench(tmp_path: Path, fences: container_fence.Fences) -> Bench:
    """A node with two cards of 16 GiB, and nothing on it."""
    return Bench(tmp_path, fences)


async def started(bench: Bench) -> cleanup.Sweeper:
    """Two pods that were started, and of which nobody knows any more."""
    for name, ids in (("one", P0), ("two", P1)):
        bench.add(agent_node.pod(name, {MEMORY: 2}), ids)
        await bench.start(ids)
    bench.pods.by_uid.clear()
    return cleanup.Sweeper(bench.starter, bench.fences, bench.pods)


async def test_a_specification_that_cannot_be_removed(
    bench: Bench, root: roots.Root, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once; all else goes, and it goes too as soon as it can."""
    sweeper = await started(bench)
    bench.path().unlink()
    bench.path().mkdir()
    for _ in range(3):
        sweeper.sweep()
    assert bench.written() == [bench.path().name]
    assert tenants.names(root) == []
    assert caplog.text.count("cannot be removed yet") == 1
    bench.path().rmdir()
    sweeper.sweep()
    assert not bench.starter.started


async def test_fences_that_cannot_be_read(bench: Bench, root: roots.Root) -> None:
    """Somebody removed the folder of all tenants."""
    sweeper = await started(bench)
    root.tenants.rename(root.path / "elsewhere")
    sweeper.sweep()
    assert not bench.starter.started


async def test_a_fence_that_somebody_else_removes_meanwhile(
    bench: Bench, root: roots.Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator with ``partage fence``, for example."""
    sweeper = await started(bench)
    names = tenants.names(root)
    monkeypatch.setattr(tenants, "names", lambda _: [*names, "uid-gone.main"])
    sweeper.sweep()
    monkeypatch.undo()
    assert tenants.names(root) == []


async def test_what_a_tenant_writes_behind_its_files_is_cut_off(
    bench: Bench, root: roots.Root
) -> None:
    """Region and seat are all that it may write on the host; their sizes are known."""
    bench.add(agent_node.pod("full", {MEMORY: 2}))
    await bench.start()
    region = tenants.read(root, "uid-full.main").region_path
    seat = seats.path(root, agent_node.uuid(0), 0)
    for path in (region, seat):
        with path.open("ab") as file:
            file.write(b"x" * (8 << 20))
    fd = os.open(region, os.O_WRONLY)
    os.posix_fallocate(fd, 0, 32 << 20)
    os.close(fd)

    cleanup.Sweeper(bench.starter, bench.fences, bench.pods).sweep()
    assert region.stat().st_size == ctypes.sizeof(layout.Region)
    assert seat.stat().st_size == ctypes.sizeof(layout.Seat)
    assert region.stat().st_blocks * 512 < 1 << 20
    assert cdi.device(MEMORY, P0) in bench.starter.started
