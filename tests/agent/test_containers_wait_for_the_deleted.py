"""A container whose room a deleted pod still uses waits for the end of that one, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

import msgspec
import pytest

from partage.agent.containers import container_fence, gate
from partage.agent.pods import identity
from partage.dialects import pods
from partage.fence.store import layout, locks, roots, shared_files, tenants
from tests.agent import agent_node
from tests.agent.agent_node import MEMORY
from tests.agent.test_containers_are_started import P0, Bench

P1, P2 = frozenset({"p1"}), frozenset({"p2"})


class Old:
    """A pod of 12 GiB that has been started, and whose process has a card until it is ended."""

    def __init__(self, bench: Bench, region: Path) -> None:
        self._bench = bench
        with shared_files.mapped(region, layout.Region) as mapped:
            mapped.slots_used = 1
        self._process: IO[bytes] = region.open("r+b")
        assert locks.take(self._process.fileno(), 0)

    def delete(self) -> None:
        """By force: the API server knows nothing of it any more, and its process runs on."""
        del self._bench.pods.by_uid["uid-old"]
        self._bench.sweeper().release("uid-old")

    def end(self) -> None:
        """The process is gone, and with it what it held; nobody is told."""
        self._process.close()

    def end_at(self, moment_s: float) -> None:
        """The process ends when so much time has passed."""
        self._bench.passing = lambda now_s: self.end() if now_s >= moment_s else None


@pytest.fixture
def bench(tmp_path: Path, fences: container_fence.Fences) -> Bench:
    """A node with two cards of 16 GiB, and nothing on it."""
    return Bench(tmp_path, fences)


@pytest.fixture
async def old(bench: Bench, root: roots.Root) -> AsyncIterator[Old]:
    """The pod ``old``, on the first card."""
    bench.add(agent_node.pod("old", {MEMORY: 12}), P0)
    await bench.start(P0)
    made = Old(bench, tenants.read(root, "uid-old.main").region_path)
    yield made
    made.end()


def deleting(pod: pods.Pod) -> pods.Pod:
    """The same pod in its grace period."""
    replace = msgspec.structs.replace
    meta = replace(pod.metadata, deletion_timestamp="2026-11-17T00:00:00Z")
    return replace(pod, metadata=meta)


async def test_it_starts_as_soon_as_the_last_process_has_ended(bench: Bench, old: Old) -> None:
    """Within the same call of the kubelet, which would come again ten seconds later."""
    old.delete()
    old.end_at(1.5)
    bench.add(agent_node.pod("next", {MEMORY: 12}), P1)
    await bench.start(P1)
    assert bench.now_s == pytest.approx(1.5)
    assert [started.uid for started in bench.starter.started.values()] == ["uid-next"]
    assert bench.fences.names() == ["uid-next.main"]
    assert bench.messages == []  # it took too short a time to be worth a word


async def test_what_has_ended_before_is_not_waited_for(bench: Bench, old: Old) -> None:
    """Nobody said so, and the sweep comes later."""
    old.delete()
    old.end()
    bench.add(agent_node.pod("next", {MEMORY: 12}), P1)
    await bench.start(P1)
    assert bench.now_s == 0


async def test_the_ids_of_the_old_one_make_no_difference(bench: Bench, old: Old) -> None:
    """The kubelet gives them away at once, and what is used still counts until it is not."""
    old.delete()
    old.end_at(1.5)
    bench.add(agent_node.pod("next", {MEMORY: 12}), P0)
    await bench.start(P0)
    assert bench.now_s == pytest.approx(1.5)
    assert [started.uid for started in bench.starter.started.values()] == ["uid-next"]
    assert len(bench.written()) == 1
    assert bench.fences.names() == ["uid-next.main"]


async def test_whoever_waits_is_told_for_whom(bench: Bench, old: Old) -> None:
    """After a while, once, as an event of the pod: it is no error yet."""
    old.delete()
    old.end_at(6)
    bench.add(agent_node.pod("next", {MEMORY: 12}), P1)
    await bench.start(P1)
    [(name, why)] = bench.messages
    assert name == "next"
    assert "waits for pod lab/old (uid-old), which was deleted and still has processes" in why
    assert "12288 MiB are granted in addition to 12288 MiB" in why


async def test_it_is_not_waited_for_ever(bench: Bench, old: Old) -> None:
    """The kubelet gives up after 30 s; before that it is told to try again, and why."""
    old.delete()
    bench.add(agent_node.pod("next", {MEMORY: 12}), P1)
    with pytest.raises(gate.NotGranted) as caught:
        await bench.start(P1)
    assert 15 < bench.now_s < 25
    assert "pod lab/next has to wait for pod lab/old (uid-old), which was deleted" in (
        caught.value.what
    )
    assert caught.value.instead.startswith("wait: ")
    assert "delete" not in caught.value.instead
    old.end()
    await bench.start(P1)


async def test_others_start_meanwhile(bench: Bench, old: Old) -> None:
    """Each container waits for itself; what fits beside the old one need not wait."""
    old.delete()
    waits = asyncio.Event()

    def stand_still(_now_s: float) -> None:
        bench.now_s = 0.1
        waits.set()

    bench.passing = stand_still
    bench.add(agent_node.pod("next", {MEMORY: 12}), P1)
    bench.add(agent_node.pod("small", {MEMORY: 4}), P2)
    waiting = asyncio.create_task(bench.start(P1))
    await waits.wait()
    await bench.start(P2)
    assert not waiting.done()
    old.end()
    await waiting


async def test_a_pod_in_its_grace_period_is_waited_for_and_not_swept(
    bench: Bench, old: Old
) -> None:
    """It may use its card again until the last moment, also if it does not now."""
    bench.pods.add(deleting(bench.pods.by_uid["uid-old"]))
    old.end()
    bench.passing = lambda now_s: old.delete() if now_s == pytest.approx(1) else None
    bench.add(agent_node.pod("next", {MEMORY: 12}), P1)
    await bench.start(P1)
    assert bench.now_s == pytest.approx(1)


async def test_somebody_who_stays_is_not_waited_for(bench: Bench, old: Old) -> None:
    """That another one leaves would not help: the advice is another, and comes at once."""
    bench.add(agent_node.pod("stays", {MEMORY: 4}), P2)
    await bench.start(P2)
    old.delete()
    bench.add(agent_node.pod("next", {MEMORY: 13}), P1)
    with pytest.raises(gate.NotGranted) as caught:
        await bench.start(P1)
    assert bench.now_s == 0
    assert caught.value.instead == "delete the pod so that it is placed again"


async def test_a_pod_that_goes_while_it_waits_waits_no_longer(bench: Bench, old: Old) -> None:
    """Its IDs may be another's next."""
    old.delete()
    bench.add(agent_node.pod("next", {MEMORY: 12}), P1)
    bench.passing = lambda _: bench.pods.by_uid.clear()
    with pytest.raises(identity.Unidentified):
        await bench.start(P1)
    assert bench.now_s == pytest.approx(0.1)


async def test_one_that_another_version_started_has_all_cards(
    bench: Bench, old: Old, root: roots.Root
) -> None:
    """Nobody can say which it has; whoever comes waits until its processes have ended."""
    old.delete()
    before = bench.starter.started
    unread = {"grant": "", "resource": "", "fence": ""}
    (device,) = before
    before[device] = msgspec.structs.replace(before[device], **unread)
    limits = root.tenants / "uid-old.main" / "limits"
    with limits.open("r+b") as file:  # its fence is of another version, too
        file.seek(8)
        file.write((layout.VERSION + 1).to_bytes(4, "little"))
    bench.add(agent_node.pod("next", {MEMORY: 1}, 1), P1)
    with pytest.raises(gate.NotGranted, match=r"has to wait for pod .*uid-old"):
        await bench.start(P1)
    old.end()
    await bench.start(P1)
