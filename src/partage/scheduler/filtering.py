"""Partage's own verbs, filter and prioritize: the best few nodes, and what they are worth.

kube-scheduler reads our answer more slowly than we make it, so it is kept short: the best nodes
only, and reasons only when nothing fits. Then every node gets one, because a node without a reason
counts as one on which evicting somebody cannot help. The same is said of nodes on which the pod can
never run, so that nobody is evicted for nothing.

Bytes come in, bytes go out; HTTP is somebody else's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterator

import msgspec

from partage.core import demands, errors
from partage.dialects import pods
from partage.scheduler import deciding, texts, wire

_ARGS = msgspec.json.Decoder(wire.SetArgs)
_AT_ONCE = 32  # nodes between two breaths; each takes about 0.1 ms if no other looks like it
_BEST = 10  # kube-scheduler's highest score of an extender


class Filter:
    """Answers filter and prioritize."""

    def __init__(self, decider: deciding.Decider, *, limit: int) -> None:
        self._decider = decider
        self._limit = limit  # 0: all

    def filter(self, body: bytes) -> bytes | Awaitable[bytes]:
        """The nodes to choose from; reasons why there are none take their time."""
        try:
            args = wire.decode(_ARGS, body, "node_names", "nodes")
            result = self._result(args)
        except wire.WireError as error:
            result = wire.FilterResult(error=str(error))
        return wire.encode(result) if isinstance(result, wire.FilterResult) else result

    def prioritize(self, body: bytes) -> bytes:
        """Scores of the nodes that fit; a node that is left out has none."""
        try:
            args = wire.decode(_ARGS, body, "node_names", "nodes")
            names = _names(args)
        except wire.WireError:
            return b"[]"
        if args.pod is None or not names:
            return b"[]"
        nodes = self._decider.rank(args.pod, names)
        worst = max(1, len(nodes) - 1)
        scores = (
            _BEST if i == 0 else (_BEST - 1) * (worst - i) // worst for i in range(len(nodes))
        )
        ranked = zip(nodes, scores, strict=True)
        return wire.encode([wire.HostPriority(node, score) for node, score in ranked])

    def _result(self, args: wire.SetArgs) -> wire.FilterResult | Awaitable[bytes]:
        if args.pod is None:
            return wire.FilterResult(error="arg or pod is nil")
        names = _names(args)
        if names is None:
            return wire.FilterResult(error="cannot get node names")
        try:
            demand = self._decider.asked(args.pod)
        except errors.DemandError as error:
            never = dict.fromkeys(names, str(error))
            return wire.FilterResult(node_names=[], failed_and_unresolvable_nodes=never)
        if demand is None:
            return _accepted(args, list(names))
        steps = self._decider.mirror.fleet.prepare(demand)
        if steps is not None:
            return self._prepared(args, args.pod, demand, steps)
        nodes = self._decider.choose(args.pod, demand, names, self._limit)
        return _accepted(args, nodes) if nodes else self._refused(demand, names)

    async def _prepared(
        self, args: wire.SetArgs, pod: pods.Pod, demand: demands.PodDemand, steps: Iterator[None]
    ) -> bytes:
        """The same for a demand whose like was never seen: all nodes are looked at, in turns."""
        for _ in steps:
            await asyncio.sleep(0)
        names = _names(args) or ()
        nodes = self._decider.choose(pod, demand, names, self._limit)
        return wire.encode(_accepted(args, nodes)) if nodes else await self._refused(demand, names)

    async def _refused(self, demand: demands.PodDemand, names: Collection[str]) -> bytes:
        now: dict[str, str] = {}
        never: dict[str, str] = {}
        found = self._decider.mirror.fleet.reasons(demand, names)
        for i, (name, code) in enumerate(found):
            (never if code.never else now)[name] = texts.REASONS[code]
            if i % _AT_ONCE == 0:
                await asyncio.sleep(0)
        result = wire.FilterResult(
            node_names=[], failed_nodes=now, failed_and_unresolvable_nodes=never
        )
        return wire.encode(result)


def _names(args: wire.SetArgs) -> Collection[str] | None:
    if args.node_names is not None:
        return args.node_names
    return None if args.nodes is None else set(wire.names(args.nodes))


def _accepted(args: wire.SetArgs, names: list[str]) -> wire.FilterResult:
    """The answer in the form of the question: by name, or with whole nodes."""
    if args.nodes is None:
        return wire.FilterResult(node_names=names)
    by_name = dict(zip(wire.names(args.nodes), args.nodes.items, strict=True))
    kept = [by_name[name] for name in names if name in by_name]
    return wire.FilterResult(nodes={"items": kept}, node_names=names)
