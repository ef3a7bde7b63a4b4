"""A storm: mixed dialects, crashes, outages and re-created pods; and never a card over anything.

Between the extender and the API server answers are swallowed, Bindings are reported as failed or
held back until the very end, and connections are refused; the API server is killed and paused.

Every sample is one consistent list of the API server, judged by sums that this file makes itself
from the grants on the pods. Only whether a pod that waits would fit is asked of Partage's own
fitting, on a fleet built anew from the objects.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster import api, objects
from cluster.control_plane.control_plane import SCHEDULER, ControlPlane
from cluster.faults import fault_proxy, faults
from cluster.partage_processes import extender_process
from partage.core import cards, fleet
from partage.dialects import contract, memory_units, nodes, pods
from partage.scheduler.mirror import mirror
from tests.cluster import making

NODES, CARDS, CARD_MIB = 40, 4, 16384
PODS = int(os.environ.get("PARTAGE_STORM_PODS", "600"))
STORM_S = float(os.environ.get("PARTAGE_STORM_SECONDS", "30"))

# Less than the five minutes after which kube-scheduler tries again by itself.
PATIENCE_S = 240.0
PAUSE_S = 4.0  # of the API server; longer than the extender waits for the answer to a Binding

Ask = Callable[[random.Random], dict[str, int]]

_DIALECTS: dict[str, Ask] = {
    "gpushare": lambda r: {"aliyun.com/gpu-mem": r.randint(1, 9)},
    "qgpu": lambda r: {
        "tke.cloud.tencent.com/qgpu-core": 5 * r.randint(1, 12),
        "tke.cloud.tencent.com/qgpu-memory": r.randint(1, 8),
    },
    "gaia": lambda r: {
        "tencent.com/vcuda-core": r.randint(5, 60),
        "tencent.com/vcuda-memory": r.randint(4, 32),
    },
    "elastic": lambda r: {"elasticgpu.io/gpu-memory": 256 * r.randint(2, 32)},
    "t9k": lambda r: {"tensorstack.dev/nvidia-gpu-percent": r.randint(5, 60)},
    "hami": lambda r: {"nvidia.com/gpu": 1, "nvidia.com/gpumem": r.randint(500, 9000)},
    "nvidia": lambda r: {"nvidia.com/gpu": r.choice((1, 1, 2))},
    "partage": lambda r: {
        "partage.dev/cards": r.choice((1, 1, 2)),
        "partage.dev/memory-mib": r.randint(512, 6000),
        "partage.dev/compute-percent": r.randint(5, 50),
    },
}


@pytest.fixture
def between(clean_cluster: ControlPlane, tmp_path: Path) -> Iterator[fault_proxy.FaultProxy]:
    """A proxy in front of the API server."""
    with fault_proxy.FaultProxy(clean_cluster, tmp_path) as started:
        yield started


@pytest.fixture
def behind(between: fault_proxy.FaultProxy, tmp_path: Path) -> Iterator[extender_process.Extender]:
    """An extender that reaches the API server through the proxy."""
    extender = extender_process.Extender(tmp_path, between.kubeconfig)
    yield extender
    extender.close()


def test_no_card_is_ever_over_and_in_the_end_all_that_fits_is_bound(
    clean_cluster: ControlPlane, between: fault_proxy.FaultProxy, behind: extender_process.Extender
) -> None:
    """600 pods on 40 nodes, the extender killed at random, the API server away again and again."""
    plane, source = clean_cluster, random.Random(20)
    plane.client.create_all(map(_node, range(NODES)))
    behind.start()
    making.schedule(plane, behind.port, advertised=())
    storm = _Storm(plane, behind, between, source)
    storm.create_all()
    storm.rage(STORM_S)
    making.eventually(lambda: _settled(storm.sample()), patience_s=PATIENCE_S, why=storm.remains)
    plane.stop_scheduler()  # so that no other Binding comes
    making.eventually(lambda: behind.metric("partage_bindings_in_flight") == 0)
    answered = between.count(faults.BINDINGS)
    storm.late.end()  # whatever was held back comes now
    making.eventually(lambda: between.count(faults.BINDINGS) >= answered + storm.late.hits)
    everything = storm.sample()
    bound = [pod for pod in everything if pod["spec"].get("nodeName")]
    assert len(bound) > PODS // 2
    dialects = {making.grant(pod)["dialect"] for pod in bound}
    assert len(dialects) == len({"aliyun" if d == "gpushare" else d for d in _DIALECTS})
    assert storm.crashes > 1  # a busy machine takes its time to start it again
    assert storm.recreated > 5
    assert storm.late.hits > 3
    assert between.count(faults.BINDINGS, server_status=201, client_status=faults.SILENCE) > 3


class _Storm:
    """What is done to the cluster, and what is seen of it meanwhile."""

    def __init__(
        self,
        plane: ControlPlane,
        extender: extender_process.Extender,
        between: fault_proxy.FaultProxy,
        source: random.Random,
    ) -> None:
        self._plane = plane
        self._extender = extender
        self._between = between
        self._source = source
        between.add(faults.swallow(faults.BINDINGS, one_in=7))
        between.add(faults.misreport(faults.BINDINGS, 504, one_in=11))
        self.late = between.add(faults.hold_back(faults.BINDINGS, one_in=29))
        self._names = {f"p{i}": source.choice(list(_DIALECTS.values())) for i in range(PODS)}
        self.crashes = self.recreated = 0

    def create_all(self) -> None:
        self._plane.client.create_all(map(self._pod, self._names))

    def rage(self, seconds: float) -> None:
        """Crash and churn for a while; every sample has to be right."""
        end = time.monotonic() + seconds
        crashing = threading.Thread(target=self._crash, args=(end,))
        crashing.start()
        troubles = itertools.cycle([self._refuse, self._pause, self._restart])
        while time.monotonic() < end:
            for _ in range(4):
                self._churn()
                self.sample()
            next(troubles)()
        crashing.join()

    def _refuse(self) -> None:
        self._between.refuse_connections()
        self._between.cut_connections()
        time.sleep(1)  # this is how long it is out of reach
        self._between.accept_connections()

    def _pause(self) -> None:
        self._plane.pause_apiserver()
        time.sleep(PAUSE_S)
        self._plane.resume_apiserver()

    def _restart(self) -> None:
        self._plane.kill_apiserver()
        self._plane.start_apiserver()

    def sample(self) -> list[api.Object]:
        """All pods at one moment, after checking what must hold at every moment."""
        self._keep_scheduler()
        pods_now = self._plane.client.list_all("Pod")
        _check([pod for pod in pods_now if pod["spec"].get("nodeName")])
        return pods_now

    def _keep_scheduler(self) -> None:
        """Start it again if it has ended, as the kubelet of its node would.

        It ends itself where a pod was bound, deleted, made anew and bound elsewhere while it could
        not watch: it takes the two for one pod that has moved ("Scheduler cache is corrupted").
        """
        if SCHEDULER not in self._plane.pids():
            making.schedule(self._plane, self._extender.port, advertised=())

    def remains(self) -> str:
        """Which pods wait though they would fit, and what the extender said last."""
        pods_now = self.sample()
        fleet_mirror = _rebuilt(pods_now)
        waiting = [pod for pod in pods_now if not pod["spec"].get("nodeName")]
        names = [p["metadata"]["name"] for p in waiting if _fits(fleet_mirror, _read(p))]
        events = [f"{name}: {making.events(self._plane, name)[-1:]}" for name in names]
        return "\n".join([*events, self._extender.log()])

    def _churn(self) -> None:
        """Delete some pods, most of them bound, and make new ones of the same names."""
        for name in self._source.sample(list(self._names), 8):
            self._plane.client.delete("Pod", name, grace_seconds=0)
            self._plane.client.create(self._pod(name))
            self.recreated += 1

    def _crash(self, end: float) -> None:
        source = random.Random(3)
        while time.monotonic() < end:
            time.sleep(source.uniform(0.2, 4))  # a crash at any moment
            self._extender.kill()
            self.crashes += 1
            self._extender.start(ready=False)

    def _pod(self, name: str) -> api.Object:
        return objects.pod(name, self._names[name](self._source))


def _node(number: int) -> api.Object:
    node_cards = [
        cards.Card(uuid=f"GPU-{number}-{i}", index=i, memory_mib=CARD_MIB, model="Simulated")
        for i in range(CARDS)
    ]
    written = {nodes.CARDS: nodes.encode(node_cards)}
    return objects.node(f"node-{number:02}", cards=0, annotations=written)


def _check(bound: list[api.Object]) -> None:
    """Every bound pod has a grant for its own node, and no card is over anything."""
    memory: collections.Counter[str] = collections.Counter()
    compute: collections.Counter[str] = collections.Counter()
    tenants: dict[str, list[bool]] = collections.defaultdict(list)
    for pod in bound:
        record = making.grant(pod)
        meta = pod["metadata"]
        assert (record["uid"], record["node"]) == (meta["uid"], pod["spec"]["nodeName"]), meta
        for share in (share for c in record["containers"] for share in c["shares"]):
            assert share["uuid"].startswith(f"GPU-{int(record['node'][5:])}-")
            memory[share["uuid"]] += share["memory_mib"]
            compute[share["uuid"]] += share["compute_percent"]
            tenants[share["uuid"]].append(share["exclusive"])
    over = {uuid: used for uuid, used in memory.items() if used > CARD_MIB}
    assert not over, over
    assert not {uuid: used for uuid, used in compute.items() if used > 100}
    assert not [uuid for uuid, alone in tenants.items() if any(alone) and len(alone) > 1]


def _settled(pods_now: list[api.Object]) -> bool:
    """Whether no pod waits that would fit."""
    fleet_mirror = _rebuilt(pods_now)
    waiting = [_read(pod) for pod in pods_now if not pod["spec"].get("nodeName")]
    return not any(_fits(fleet_mirror, pod) for pod in waiting)


def _rebuilt(pods_now: list[api.Object]) -> mirror.Mirror:
    fleet_mirror = mirror.Mirror(fleet.standard(), memory_units.Unit(contract.Settings()))
    for number in range(NODES):
        fleet_mirror.nodes.put(msgspec.convert(_node(number), nodes.Node))
    for pod in pods_now:
        fleet_mirror.pods.put(_read(pod))
    assert len(fleet_mirror.problems) == 0
    return fleet_mirror


def _fits(fleet_mirror: mirror.Mirror, pod: pods.Pod) -> bool:
    demand = fleet_mirror.demand(pod)
    assert demand is not None
    return bool(fleet_mirror.fleet.best(demand))


def _read(pod: dict[str, Any]) -> pods.Pod:
    return msgspec.json.decode(json.dumps(pod), type=pods.Pod)
