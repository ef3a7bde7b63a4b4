"""Owners of a pod can edit its record; they get nothing by it, and take nothing from others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from partage.agent.containers import container_fence, gate
from partage.dialects import grant_record, pods
from partage.fence.store import limits, roots, tenants
from tests.agent import agent_node
from tests.agent.agent_node import CORE, MEMORY
from tests.agent.test_containers_are_started import P0, Bench

P1 = frozenset({"p1"})
GIB = 1 << 30


@pytest.fixture
def bench(tmp_path: Path, fences: container_fence.Fences) -> Bench:
    """A node with two cards of 16 GiB, and nothing on it."""
    return Bench(tmp_path, fences)


def edited(pod: pods.Pod, change: Callable[[Any], None]) -> pods.Pod:
    """The pod after its owner edited the record of its grant."""
    record = json.loads(pod.metadata.annotations[grant_record.GRANT])
    change(record)
    annotations = {**pod.metadata.annotations, grant_record.GRANT: json.dumps(record)}
    meta = msgspec.structs.replace(pod.metadata, annotations=annotations)
    return msgspec.structs.replace(pod, metadata=meta)


def of_container(**words: Any) -> Callable[[Any], None]:
    """Sets words of the first container's record."""
    return lambda record: record["containers"][0].update(words)


def on_card(index: int) -> Callable[[Any], None]:
    """Moves the first container's only share."""
    share = {"uuid": agent_node.uuid(index), "index": index}
    return lambda record: record["containers"][0]["shares"][0].update(share)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        {"memory_enforced": False},
        {"compute_mode": "best-effort"},
        {"compute_mode": "burst", "compute_ceiling_percent": 100},
        {"compute_mode": "node"},
    ],
)
async def test_how_a_share_is_held_is_not_for_the_record_to_say(
    bench: Bench, root: roots.Root, words: dict[str, Any], restarted: bool
) -> None:
    """Its memory stays limited, and its time fixed, at the first start and at the next."""
    pod = agent_node.pod("train", {MEMORY: 2, CORE: 30})
    bench.add(pod)
    if restarted:
        await bench.start()
    bench.pods.add(edited(pod, of_container(**words)))
    await bench.starter.starting(MEMORY, P0)
    [held] = tenants.read(root, "uid-train.main").limits.cards
    assert (held.memory_bytes, held.mode) == (2 * GIB, limits.Mode.FIXED)


@pytest.mark.parametrize("resource", [MEMORY, agent_node.WHOLE])
async def test_a_pod_that_was_started_keeps_its_cards(bench: Bench, resource: str) -> None:
    """A record that names another card keeps the container waiting; the old one lets it start."""
    pod = agent_node.pod("train", {resource: 1}, 0)
    bench.add(pod, resource=resource)
    await bench.start(resource=resource)
    bench.pods.add(edited(pod, on_card(1)))
    with pytest.raises(
        gate.NotGranted, match="other cards or shares than those it was started with"
    ):
        await bench.starter.starting(resource, P0)
    bench.pods.add(pod)
    await bench.starter.starting(resource, P0)


async def test_it_is_remembered_by_the_next_agent(bench: Bench) -> None:
    """With which grant a pod was started is in its specification."""
    pod = agent_node.pod("train", {agent_node.WHOLE: 1}, 0)
    bench.add(pod, resource=agent_node.WHOLE)
    await bench.start(resource=agent_node.WHOLE)
    bench.pods.add(edited(pod, on_card(1)))
    with pytest.raises(gate.NotGranted, match="than those it was started with"):
        await bench.agent().starting(agent_node.WHOLE, P0)


@pytest.mark.parametrize(
    "change", [on_card(1), of_container(name="nobody")], ids=["moved", "damaged"]
)
async def test_what_a_pod_has_is_counted_whatever_its_record_says_now(
    bench: Bench, change: Callable[[Any], None]
) -> None:
    """Moved or damaged: its memory is taken where it was started."""
    pod = agent_node.pod("first", {MEMORY: 10}, 0)
    bench.add(pod)
    await bench.start()
    bench.pods.add(edited(pod, change))
    bench.add(agent_node.pod("second", {MEMORY: 10}, 0), P1)
    with pytest.raises(gate.NotGranted, match="10240 MiB are granted in addition to 10240 MiB"):
        await bench.start(P1)


async def test_nothing_new_starts_on_an_unhealthy_card(bench: Bench) -> None:
    """What ran there may start again; what was bound before the card fell unhealthy waits."""
    bench.add(agent_node.pod("ran", {MEMORY: 2}))
    await bench.start()
    bench.state.set_unhealthy({agent_node.uuid(0): "Xid 79"})
    await bench.starter.starting(MEMORY, P0)
    bench.add(agent_node.pod("new", {MEMORY: 2}), P1)
    with pytest.raises(gate.NotGranted, match=r"card 0 .* is unhealthy; wait until it is healthy"):
        await bench.start(P1)
    bench.state.set_unhealthy({})
    await bench.start(P1)
