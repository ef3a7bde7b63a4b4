"""A mirror with a few nodes and pods, and the bodies of requests about them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from partage.core import cards, demands, fleet
from partage.dialects import contract, memory_units, nodes, pods
from partage.scheduler import decisions, nominations
from partage.scheduler.binds import bind_states
from partage.scheduler.mirror import mirror
from partage.scheduler.verbs import (
    filter_history,
    filter_verb,
    gpushare_answers,
    gpushare_inspect,
    node_scores,
    own_answers,
    preemptions,
)

MEMORY = "aliyun.com/gpu-mem"
COUNT = "aliyun.com/gpu-count"
GIB = 1024


class Clock:
    """A time that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """The time now."""
        return self.now


class Cluster:
    """A cluster as an extender sees it, without its connections."""

    def __init__(self, policy: str = "binpack", *, unit: str = "auto", limit: int = 64) -> None:
        settings = contract.Settings(memory_unit_mib=1 if unit == "MiB" else 1024)
        self.freed: list[str] = []
        self.refused: list[demands.PodDemand] = []
        self.clock = Clock()
        self.mirror = mirror.Mirror(
            fleet.standard(policy),
            memory_units.Unit(settings, fixed=unit != "auto"),
            freed=self.freed.append,
        )
        self.binds = bind_states.Binds(self.mirror, clock=self.clock, hold_s=15.0)
        self.decider = decisions.Decider(self.mirror, self.binds, refused=self._note_refused)
        self.filter_history = filter_history.FilterHistory(clock=self.clock)
        self.own = self.own_filter(limit=limit)
        self.gpushare = filter_verb.Filter(
            self.mirror,
            self.decider,
            self.filter_history,
            gpushare_answers.GpushareAnswers(self.fleet),
        )
        self.scores = node_scores.NodeScores(self.decider)
        self.preemption = preemptions.Preemption(self.mirror)

    def own_filter(
        self,
        *,
        limit: int = 64,
        limit_without_preference: int | None = None,
        nominations: nominations.Nominations | None = None,
    ) -> filter_verb.Filter:
        """Partage's own filter over this cluster."""
        answers = own_answers.OwnAnswers(
            self.fleet,
            self.decider,
            limit=limit,
            limit_without_preference=limit_without_preference,
        )
        return filter_verb.Filter(
            self.mirror, self.decider, self.filter_history, answers, nominations=nominations
        )

    def _note_refused(self, demand: demands.PodDemand, _namespace: str) -> None:
        self.refused.append(demand)

    @property
    def fleet(self) -> fleet.Fleet:
        """The fleet."""
        return self.mirror.fleet

    def free_mib(self, node: str) -> list[int]:
        """What each card of a node has left."""
        state = self.fleet.state(node)
        assert state is not None
        return [room.free_mib for room in state.rooms]

    def filter(self, body: bytes) -> dict[str, Any]:
        """The answer of our own filter."""
        return _answer(self.own, body)

    def gpushare_filter(self, body: bytes) -> dict[str, Any]:
        """The answer of gpushare's filter."""
        return _answer(self.gpushare, body)

    def inspect(self, node: str = "") -> dict[str, Any]:
        """The answer of gpushare's inspect."""
        answer: dict[str, Any] = json.loads(
            gpushare_inspect.GpushareInspect(self.mirror).inspect(node)
        )
        return answer


def _answer(verb: filter_verb.Filter, body: bytes) -> dict[str, Any]:
    result = verb.filter(body)
    answer: dict[str, Any] = json.loads(result if isinstance(result, bytes) else _run(result))
    return answer


def _run(awaited: Awaitable[bytes]) -> bytes:
    """What comes of an answer that takes its time; tests may have a loop of their own."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, _wait(awaited)).result()


async def _wait(awaited: Awaitable[bytes]) -> bytes:
    return await awaited


def node(
    name: str = "n1",
    *,
    count: int = 2,
    units_per_card: int = 16,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    capacity: Mapping[str, pods.Amount] | None = None,
    cpu: str = "64",
) -> nodes.Node:
    """A node as gpushare's plugin reports it; MiB if a card has so many."""
    amounts: dict[str, pods.Amount] = {MEMORY: count * units_per_card, COUNT: count}
    if capacity is not None:
        amounts = dict(capacity)
    return nodes.Node(
        nodes.Metadata(name, f"uid-{name}", annotations or {}, labels or {}),
        nodes.Status(
            amounts,
            {**amounts, "cpu": cpu, "memory": "256Gi"},
            (nodes.Address("InternalIP", "10.0.0.1"),),
        ),
    )


def carded(name: str, *sizes_mib: int, uuid: str = "GPU-{name}-{i}", **facts: Any) -> nodes.Node:
    """A node whose agent wrote its cards down."""
    reported = [
        cards.Card(uuid=uuid.format(name=name, i=i), index=i, memory_mib=size)
        for i, size in enumerate(sizes_mib)
    ]
    return node(name, capacity={}, annotations={nodes.CARDS: nodes.encode(reported)}, **facts)


def pod(
    name: str,
    limits: Mapping[str, pods.Amount] | None = None,
    *,
    on: str = "",
    uid: str = "",
    annotations: Mapping[str, str] | None = None,
    phase: str = "",
    cpu: str = "",
    version: int = 0,
) -> pods.Pod:
    """A pod of one container."""
    amounts = dict(limits or {})
    requests: dict[str, pods.Amount] = {"cpu": cpu} if cpu else {}
    return pods.Pod(
        pods.Metadata(
            name,
            "default",
            uid or f"uid-{name}",
            annotations or {},
            resource_version=str(version) if version else "",
        ),
        pods.Spec((pods.Container("main", pods.Resources(amounts, requests)),), node_name=on),
        pods.Status(phase),
    )


def gpushare_record(units: int, index: int | None = None, card: int = 16) -> dict[str, str]:
    """What gpushare's extender writes on a pod."""
    written = {
        "ALIYUN_COM_GPU_MEM_POD": str(units),
        "ALIYUN_COM_GPU_MEM_DEV": str(card),
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1600000000000000000",
    }
    return written if index is None else written | {"ALIYUN_COM_GPU_MEM_IDX": str(index)}


def wire_pod(name: str, limits: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A pod as kube-scheduler sends it."""
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **more},
        "spec": {"containers": [{"name": "main", "resources": {"limits": dict(limits)}}]},
    }


def args(pod: Mapping[str, Any] | None, names: Sequence[str] | None) -> bytes:
    """The body of filter and prioritize."""
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
