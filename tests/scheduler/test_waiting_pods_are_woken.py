"""Kicking: one patch for what was freed, of a node that is there, and none for nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler import kicking, learning
from tests.scheduler import making


class Nodes(kube.Api):
    """Takes patches of nodes."""

    def __init__(self) -> None:
        """Nothing is connected."""
        self.patched: list[str] = []
        self.answers: list[Exception] = []

    async def patch(self, path: str, body: object, *, kind: Any = None) -> bytes:
        """Remember it."""
        if self.answers:
            raise self.answers.pop(0)
        self.patched.append(path)
        return b"{}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test needs the pauses."""
    monkeypatch.setattr(kicking, "_MOMENT_S", 0.001)
    monkeypatch.setattr(kicking, "_PAUSE_S", 0.001)


@contextlib.asynccontextmanager
async def _kicking(world: making.World, api: Nodes) -> AsyncIterator[kicking.Kicker]:
    kicker = kicking.Kicker(api, leading=lambda: True)
    task = asyncio.create_task(kicker.run(world.decider))
    yield kicker
    await asyncio.sleep(0.05)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _refuse(world: making.World, units: int = 3) -> None:
    """Somebody was refused, for want of what may be there by now."""
    demand = world.mirror.demand(making.pod("p", {making.MEMORY: units}))
    assert demand is not None
    world.fleet.best(demand)
    world.decider.refused[demand] = None


async def test_what_is_freed_in_a_moment_is_one_patch() -> None:
    """Each one makes kube-scheduler look at every rejected pod."""
    world, api = making.World(), Nodes()
    world.mirror.nodes.put(making.node())
    _refuse(world)
    async with _kicking(world, api) as kicker:
        for _ in range(100):
            kicker.freed("n1")
    assert api.patched == ["/api/v1/nodes/n1"]
    assert not world.decider.refused


async def test_nobody_refused_is_no_patch() -> None:
    """Room appears all the time."""
    world, api = making.World(), Nodes()
    async with _kicking(world, api) as kicker:
        kicker.freed("n1")
    assert api.patched == []


async def test_room_that_helps_nobody_is_no_patch() -> None:
    """A patch makes kube-scheduler ask about every pod again, for nothing."""
    world, api = making.World(), Nodes()
    world.mirror.nodes.put(making.node())
    _refuse(world, units=17)
    async with _kicking(world, api) as kicker:
        for _ in range(5):
            kicker.freed("n1")
            await asyncio.sleep(0.005)
    assert api.patched == []
    assert world.decider.refused


async def test_after_a_start_all_that_wait_are_asked_about() -> None:
    """Whoever decided before us may have refused them."""
    world, api = making.World(), Nodes()
    world.mirror.nodes.put(making.node())
    async with _kicking(world, api) as kicker:
        kicker.freed("n1")
        kicker.wake()
    assert api.patched == ["/api/v1/nodes/n1"]


async def test_a_node_that_is_gone_is_not_the_one_to_patch() -> None:
    """The room may be elsewhere, and any node wakes the scheduler."""
    world, api = making.World(), Nodes()
    world.mirror.nodes.put(making.node("n1"))
    _refuse(world)
    async with _kicking(world, api) as kicker:
        kicker.freed("n1")
        kicker.freed("gone")
    assert api.patched == ["/api/v1/nodes/n1"]


async def test_a_patch_that_failed_is_tried_again() -> None:
    """The API server may be away."""
    world, api = making.World(), Nodes()
    world.mirror.nodes.put(making.node())
    _refuse(world)
    api.answers = [kube_errors.Unreachable("away", sent=False)] * 3
    async with _kicking(world, api) as kicker:
        kicker.freed("n1")
    assert api.patched == ["/api/v1/nodes/n1"]


async def test_a_missing_right_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """All else works without it."""
    world, api = making.World(), Nodes()
    world.mirror.nodes.put(making.node())
    api.answers = [kube_errors.Forbidden(403, "Forbidden", "no")] * 2
    async with _kicking(world, api) as kicker:
        for _ in range(2):
            _refuse(world)
            kicker.freed("n1")
            await asyncio.sleep(0.02)
    told = [r for r in caplog.records if "allow 'patch' on nodes" in r.getMessage()]
    assert len(told) == 1


async def test_a_lesson_that_fails_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Decisions go on with the opinions that are there."""
    world = making.World("priced")
    world.mirror.nodes.put(making.node())
    monkeypatch.setattr(learning, "_PAUSE_S", 0.001)

    async def broken(_mirror: object) -> None:
        raise RecursionError

    monkeypatch.setattr(learning, "learn", broken)
    for i in range(30):
        world.mirror.pods.put(making.pod(f"p{i}", {making.MEMORY: 1}))
    task = asyncio.create_task(learning.run(world.mirror))
    await asyncio.sleep(0.02)
    assert not task.done()
    task.cancel()
    assert "no lesson was learned" in caplog.text


async def test_a_lesson_is_learned_from_what_arrived() -> None:
    """And the policy of that name is another one afterwards."""
    world = making.World("priced")
    world.mirror.nodes.put(making.node())
    for i in range(30):
        world.mirror.pods.put(making.pod(f"p{i}", {making.MEMORY: 1 + i % 7}))
    assert world.mirror.mix.due
    await learning.learn(world.mirror)
    assert not world.mirror.mix.due
