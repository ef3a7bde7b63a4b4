"""Requeue: one patch for what was freed, of a node that exists, and none if no pod is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler import price_learning, requeue
from tests.scheduler import small_cluster


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
    monkeypatch.setattr(requeue, "_MOMENT_S", 0.001)
    monkeypatch.setattr(requeue, "_PAUSE_S", 0.001)


@contextlib.asynccontextmanager
async def _waking(cluster: small_cluster.Cluster, api: Nodes) -> AsyncIterator[requeue.Requeue]:
    waker = requeue.Requeue(api, leading=lambda: True)
    task = asyncio.create_task(waker.run(cluster.mirror))
    yield waker
    await asyncio.sleep(0.05)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _refuse(cluster: small_cluster.Cluster, waker: requeue.Requeue, units: int = 3) -> None:
    """A pod was refused, for want of what may be there by now."""
    demand = cluster.mirror.demand(small_cluster.pod("p", {small_cluster.MEMORY: units}))
    assert demand is not None
    cluster.fleet.best(demand)
    waker.note_refused(demand)


async def test_what_is_freed_in_a_moment_is_one_patch() -> None:
    """Each one makes kube-scheduler look at every rejected pod."""
    cluster, api = small_cluster.Cluster(), Nodes()
    cluster.mirror.nodes.put(small_cluster.node())
    async with _waking(cluster, api) as waker:
        _refuse(cluster, waker)
        for _ in range(100):
            waker.note_freed("n1")
    assert api.patched == ["/api/v1/nodes/n1"]
    assert not waker.refused


async def test_a_node_without_cards_is_not_written_on() -> None:
    """It may be another vendor's; one with cards will do as well."""
    cluster, api = small_cluster.Cluster(), Nodes()
    cluster.mirror.nodes.put(small_cluster.node("amd", count=0))
    cluster.mirror.nodes.put(small_cluster.node("n1"))
    async with _waking(cluster, api) as waker:
        _refuse(cluster, waker)
        waker.note_freed("amd")
    assert api.patched == ["/api/v1/nodes/n1"]


async def test_without_any_card_nobody_is_woken() -> None:
    """Nothing would fit."""
    cluster, api = small_cluster.Cluster(), Nodes()
    cluster.mirror.nodes.put(small_cluster.node("amd", count=0))
    async with _waking(cluster, api) as waker:
        waker.wake_all()
        waker.note_freed("amd")
    assert api.patched == []


async def test_nobody_refused_is_no_patch() -> None:
    """Room appears all the time."""
    cluster, api = small_cluster.Cluster(), Nodes()
    async with _waking(cluster, api) as waker:
        waker.note_freed("n1")
    assert api.patched == []


async def test_room_that_helps_nobody_is_no_patch() -> None:
    """A patch makes kube-scheduler ask about every pod again, for nothing."""
    cluster, api = small_cluster.Cluster(), Nodes()
    cluster.mirror.nodes.put(small_cluster.node())
    async with _waking(cluster, api) as waker:
        _refuse(cluster, waker, units=17)
        for _ in range(5):
            waker.note_freed("n1")
            await asyncio.sleep(0.005)
    assert api.patched == []
    assert waker.refused


async def test_after_a_start_all_that_wait_are_asked_about() -> None:
    """Whoever decided before us may have refused them."""
    cluster, api = small_cluster.Cluster(), Nodes()
    cluster.mirror.nodes.put(small_cluster.node())
    async with _waking(cluster, api) as waker:
        waker.note_freed("n1")
        waker.wake_all()
    assert api.patched == ["/api/v1/nodes/n1"]


async def test_a_node_that_is_gone_is_not_the_one_to_patch() -> None:
    """The room may be elsewhere, and any node wakes the scheduler."""
    cluster, api = small_cluster.Cluster(), Nodes()
    cluster.mirror.nodes.put(small_cluster.node("n1"))
    async with _waking(cluster, api) as waker:
        _refuse(cluster, waker)
        waker.note_freed("n1")
        waker.note_freed("gone")
    assert api.patched == ["/api/v1/nodes/n1"]


async def test_a_patch_that_failed_is_tried_again() -> None:
    """The API server may be away."""
    cluster, api = small_cluster.Cluster(), Nodes()
    cluster.mirror.nodes.put(small_cluster.node())
    api.answers = [kube_errors.Unreachable("away", sent=False)] * 3
    async with _waking(cluster, api) as waker:
        _refuse(cluster, waker)
        waker.note_freed("n1")
    assert api.patched == ["/api/v1/nodes/n1"]


async def test_a_missing_right_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """All else works without it."""
    cluster, api = small_cluster.Cluster(), Nodes()
    cluster.mirror.nodes.put(small_cluster.node())
    api.answers = [kube_errors.Forbidden(403, "Forbidden", "no")] * 2
    async with _waking(cluster, api) as waker:
        for _ in range(2):
            _refuse(cluster, waker)
            waker.note_freed("n1")
            await asyncio.sleep(0.02)
    complaints = [r for r in caplog.records if "allow 'patch' on nodes" in r.getMessage()]
    assert len(complaints) == 1


async def test_a_lesson_that_fails_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Decisions go on with the opinions that are there."""
    cluster = small_cluster.Cluster("priced")
    cluster.mirror.nodes.put(small_cluster.node())
    monkeypatch.setattr(price_learning, "_PAUSE_S", 0.001)

    async def broken(_mirror: object) -> None:
        raise RecursionError

    monkeypatch.setattr(price_learning, "learn", broken)
    for i in range(30):
        cluster.mirror.pods.put(small_cluster.pod(f"p{i}", {small_cluster.MEMORY: 1}))
    task = asyncio.create_task(price_learning.run(cluster.mirror))
    await asyncio.sleep(0.02)
    assert not task.done()
    task.cancel()
    assert "no lesson was learned" in caplog.text


async def test_a_lesson_is_learned_from_what_arrived() -> None:
    """And the policy of that name is another one afterwards."""
    cluster = small_cluster.Cluster("priced")
    cluster.mirror.nodes.put(small_cluster.node())
    for i in range(30):
        cluster.mirror.pods.put(small_cluster.pod(f"p{i}", {small_cluster.MEMORY: 1 + i % 7}))
    assert cluster.mirror.mix.due
    await price_learning.learn(cluster.mirror)
    assert not cluster.mirror.mix.due
