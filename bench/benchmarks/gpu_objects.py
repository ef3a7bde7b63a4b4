"""GPU objects: what it costs to keep them, and whether a storm of binds is slower for it.

By hand, on a mirror of 5,000 nodes of 8 cards with 8 pods on each node: the time to compute and
compare all 40,000 objects, the longest stop of the event loop meanwhile, and what one grant's
change costs, from the change to the name in the queue. Nothing else may wait longer than 20 ms.

In virtual time, on the same mirror: how many writes the API server gets in the busiest second while
all 40,000 objects are made, in a storm of Bindings and afterwards, and how long each takes. These
are counts, and the same on every machine.

On a real API server, with a real extender and kube-scheduler: how many objects a second are written
after the start, how many pods a second are bound while nobody writes and while all cards wait to be
written, and the longest stop of the extender's loop during the storm. ``PARTAGE_BENCH_NODES``
chooses how many nodes that has.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterator

from bench.benchmarks import scale
from bench.large_cluster import (
    filled_api_server,
    filled_mirror,
    gpu_object_store,
    own_control_plane,
    realistic_objects,
)
from bench.measurement import binding_watch, coroutines, metrics_page, results, virtual_time
from cluster import api, objects
from cluster.control_plane import control_plane, scheduler_config
from partage.kube import api as kube
from partage.scheduler.gpu_objects import card_objects, keeper

NODES = 5000
PODS_PER_NODE = 8
REAL_NODES = int(os.environ.get("PARTAGE_BENCH_NODES", "500"))
_CHANGES = 200
_STORMS = 3
_STORM_PODS = 400
_WRITES = "partage_gpu_object_writes_total"
_AIM_MS = 20
_AIM_PER_S = 105  # a rate of 100, and what four writers have begun before a second begins
_STORM_S = 60  # in virtual time
_BINDS_PER_S = 200  # and as many pods that end
_PATIENCE_S = 900.0
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def run() -> Iterator[results.Result]:
    """All lines."""
    yield from _by_hand()
    yield from _in_virtual_time()
    yield from own_control_plane.run(_on_a_server)


def _by_hand() -> Iterator[results.Result]:
    names = realistic_objects.names(NODES)
    filled = filled_mirror.FilledMirror(filled_mirror.empty(), names)
    filled.fill(PODS_PER_NODE * NODES)
    filled_mirror.freeze_garbage()
    kept = keeper.Keeper(_NoApi(), filled.mirror, ready=lambda: True)
    began_ns = time.thread_time_ns()
    stop_ms = coroutines.longest_step_ms(lambda: _compared(kept))
    took_ms = (time.thread_time_ns() - began_ns) / 1e6
    yield results.Amount(what=f"compare all cards of {NODES} nodes", amount=took_ms, unit="ms")
    yield results.Amount(what="longest stop meanwhile", amount=stop_ms, unit="ms", aim=_AIM_MS)
    for name in names:
        _store(kept, filled, name)
    changes_us = [_change_us(filled, kept) for _ in range(_CHANGES)]
    yield results.Amount(
        what="compare after one grant's change", amount=statistics.median(changes_us), unit="us"
    )


def _store(kept: keeper.Keeper, filled: filled_mirror.FilledMirror, node: str) -> None:
    """As if all its objects were written."""
    state = filled.mirror.fleet.state(node)
    assert state is not None
    for card in card_objects.of_node(state, ()):
        kept.stored.note(card.name, "1", card.digest)


class _NoApi(kube.Api):
    """Nothing is sent."""

    def __init__(self) -> None:
        """Nothing is connected."""


async def _compared(kept: keeper.Keeper) -> bytes:
    await kept.compare()
    return b""


def _change_us(filled: filled_mirror.FilledMirror, kept: keeper.Keeper) -> float:
    filled.change()
    began_ns = time.thread_time_ns()
    coroutines.result(_compared(kept))
    return (time.thread_time_ns() - began_ns) / 1e3


def _in_virtual_time() -> Iterator[results.Result]:
    filled = filled_mirror.FilledMirror(filled_mirror.empty(), realistic_objects.names(NODES))
    filled.fill(PODS_PER_NODE * NODES)
    yield from virtual_time.run(_storm_in_virtual_time(filled))


async def _storm_in_virtual_time(filled: filled_mirror.FilledMirror) -> list[results.Result]:
    """All objects are made; then pods come and go; then nothing happens."""
    loop, store, binds = asyncio.get_running_loop(), gpu_object_store.GpuObjectStore(), 0
    kept = keeper.Keeper(
        store, filled.mirror, ready=lambda: True, binds=lambda: binds, clock=loop.time
    )
    keeping = asyncio.create_task(kept.run())
    lines = await _told(store, kept, "all objects are made")
    storm_at = loop.time()
    for number in range(_STORM_S * _BINDS_PER_S):
        await asyncio.sleep(max(0.0, storm_at + number / _BINDS_PER_S - loop.time()))
        filled.replace()
        binds += 1
    lines += _counts(store, storm_at, "a storm of Bindings")
    lines += await _told(store, kept, "what it has left is written")
    lines += await _told(store, kept, "nothing changes")
    keeping.cancel()
    return lines


async def _told(
    store: gpu_object_store.GpuObjectStore, kept: keeper.Keeper, when: str
) -> list[results.Result]:
    """How many writes there are until there is nothing to write for a minute."""
    began_at = asyncio.get_running_loop().time()
    before = -1
    while kept.waiting or before != store.writes:
        before = store.writes
        await asyncio.sleep(60)
    return _counts(store, began_at, when)


def _counts(
    store: gpu_object_store.GpuObjectStore, since_s: float, when: str
) -> list[results.Result]:
    seconds = {second: count for second, count in store.in_second.items() if second >= since_s}
    took_s = max(seconds, default=since_s) - since_s
    busiest = max(seconds.values(), default=0)
    return [
        results.Amount(what=f"writes while {when}", amount=sum(seconds.values()), unit=""),
        results.Amount(what="in the busiest second", amount=busiest, unit="/s", aim=_AIM_PER_S),
        results.Amount(what="until the last of them", amount=took_s, unit="s"),
    ]


def _on_a_server(plane: control_plane.ControlPlane) -> Iterator[results.Result]:
    server = filled_api_server.FilledApiServer(plane.client, REAL_NODES, subject="gpu_objects")
    server.make_nodes()
    with scale.Extender(plane.kubeconfig).running() as extender:
        _start_scheduler(plane, extender.port)
        yield from _storm(plane, server, extender, "without GPU objects")
    plane.client.call("POST", _DEFINITIONS, objects.gpu_definition())
    with scale.Extender(plane.kubeconfig).running() as extender:
        plane.stop_scheduler()
        _start_scheduler(plane, extender.port)
        yield from _storm(plane, server, extender, "while all cards are written")
        yield from _rate(extender)
        yield from _storm(plane, server, extender, "while changes are written")


def _start_scheduler(plane: control_plane.ControlPlane, port: int) -> None:
    advertised = {objects.MEMORY, objects.COUNT}
    configuration = scheduler_config.partage(
        plane.kubeconfig, port=port, advertised=advertised, queries_per_second=1000
    )
    plane.start_scheduler(configuration)


def _storm(
    plane: control_plane.ControlPlane,
    server: filled_api_server.FilledApiServer,
    extender: scale.Extender,
    when: str,
) -> Iterator[results.Result]:
    extender.longest()
    storms = [_one_storm(plane, server, extender) for _ in range(_STORMS)]
    binds, writes = (statistics.median(rates) for rates in zip(*storms, strict=True))
    yield results.Amount(what=f"pods a second, {when}", amount=binds, unit="/s")
    yield results.Amount(what="objects written a second meanwhile", amount=writes, unit="/s")
    stop_ms = extender.longest().cpu_ms
    yield results.Amount(what=f"longest stop, {when}", amount=stop_ms, unit="ms", aim=_AIM_MS)


def _one_storm(
    plane: control_plane.ControlPlane,
    server: filled_api_server.FilledApiServer,
    extender: scale.Extender,
) -> tuple[float, float]:
    """How many pods were bound a second, and how many objects were written."""
    coming = server.unbound(_STORM_PODS)
    began, before = time.monotonic(), _number(extender, _WRITES)
    with binding_watch.Watch(plane.kubeconfig) as watch:
        plane.client.create_all(coming)
        watch.wait(_STORM_PODS, patience_s=_PATIENCE_S)
    took_s, writes = time.monotonic() - began, _number(extender, _WRITES) - before
    for pod in coming:
        plane.client.delete("Pod", pod["metadata"]["name"], api.DEFAULT, grace_seconds=0)
    return _STORM_PODS / took_s, writes / took_s


def _rate(extender: scale.Extender) -> Iterator[results.Result]:
    """Until everything is written, which the storm has left a part of."""
    began, before = time.monotonic(), _number(extender, _WRITES)
    _until_written(extender)
    rate = (_number(extender, _WRITES) - before) / (time.monotonic() - began)
    yield results.Amount(what="writes of objects a second, alone", amount=rate, unit="/s")


def _until_written(extender: scale.Extender) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while _number(extender, "partage_gpu_objects_waiting"):
        if time.monotonic() > deadline:
            raise TimeoutError("objects still wait to be written")
        time.sleep(0.25)


def _number(extender: scale.Extender, name: str) -> float:
    return metrics_page.total(extender.get("/metrics"), name)
