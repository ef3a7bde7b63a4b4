"""Whoever owns a pod can edit its record; that gets him nothing, and takes nothing from others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from partage.agent import fencing, gate
from partage.dialects import native, pods
from partage.fence import limits, roots, tenants
from tests.agent import making
from tests.agent.making import CORE, MEMORY
from tests.agent.test_containers_are_started import P0, Bench

P1 = frozenset({"p1"})
GIB = 1 << 30


@pytest.fixture
def bench(tmp_path: Path, fences: fencing.Fences) -> Bench:
    """A node with two cards of 16 GiB, and nothing on it."""
    return Bench(tmp_path, fences)


def edited(pod: pods.Pod, change: Callable[[Any], None]) -> pods.Pod:
    """The pod after its owner edited the record of its grant."""
    record = json.loads(pod.metadata.annotations[native.GRANT])
    change(record)
    annotations = {**pod.metadata.annotations, native.GRANT: json.dumps(record)}
    meta = msgspec.structs.replace(pod.metadata, annotations=annotations)
    return msgspec.structs.replace(pod, metadata=meta)


def of_container(**words: Any) -> Callable[[Any], None]:
    """Sets words of the first container's record."""
    return lambda record: record["containers"][0].update(words)


def on_card(index: int) -> Callable[[Any], None]:
    """Moves the first container's only share."""
    share = {"uuid": making.uuid(index), "index": index}
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
    pod = making.pod("train", {MEMORY: 2, CORE: 30})
    bench.add(pod)
    if restarted:
        await bench.start()
    bench.pods.add(edited(pod, of_container(**words)))
    await bench.starter.starting(MEMORY, P0)
    [held] = tenants.read(root, "uid-train.main").limits.cards
    assert (held.memory_bytes, held.mode) == (2 * GIB, limits.Mode.FIXED)


@pytest.mark.parametrize("resource", [MEMORY, making.WHOLE])
async def test_a_pod_that_was_started_keeps_its_cards(bench: Bench, resource: str) -> None:
    """A record that names another card keeps the container waiting; the old one lets it start."""
    pod = making.pod("train", {resource: 1}, 0)
    bench.add(pod, resource=resource)
    await bench.start(resource=resource)
    bench.pods.add(edited(pod, on_card(1)))
    with pytest.raises(gate.NotGranted, match="other cards or shares than it was started with"):
        await bench.starter.starting(resource, P0)
    bench.pods.add(pod)
    await bench.starter.starting(resource, P0)


async def test_it_is_remembered_by_the_next_agent(bench: Bench) -> None:
    """With which grant a pod was started is in its specification."""
    pod = making.pod("train", {making.WHOLE: 1}, 0)
    bench.add(pod, resource=making.WHOLE)
    await bench.start(resource=making.WHOLE)
    bench.pods.add(edited(pod, on_card(1)))
    with pytest.raises(gate.NotGranted, match="than it was started with"):
        await bench.agent().starting(making.WHOLE, P0)


@pytest.mark.parametrize(
    "change", [on_card(1), of_container(name="nobody")], ids=["moved", "damaged"]
)
async def test_what_a_pod_has_is_counted_whatever_its_record_says_now(
    bench: Bench, change: Callable[[Any], None]
) -> None:
    """Moved or damaged: its memory is taken where it was started."""
    pod = making.pod("first", {MEMORY: 10}, 0)
    bench.add(pod)
    await bench.start()
    bench.pods.add(edited(pod, change))
    bench.add(making.pod("second", {MEMORY: 10}, 0), P1)
    with pytest.raises(gate.NotGranted, match="10240 MiB are granted beside 10240 MiB"):
        await bench.start(P1)


async def test_nothing_new_starts_on_a_sick_card(bench: Bench) -> None:
    """What ran there may start again; what was bound before the card fell sick waits."""
    bench.add(making.pod("ran", {MEMORY: 2}))
    await bench.start()
    bench.world.set_sick({making.uuid(0): "Xid 79"})
    await bench.starter.starting(MEMORY, P0)
    bench.add(making.pod("new", {MEMORY: 2}), P1)
    with pytest.raises(gate.NotGranted, match=r"card 0 .* is sick; wait until it is well"):
        await bench.start(P1)
    bench.world.set_sick({})
    await bench.start(P1)
