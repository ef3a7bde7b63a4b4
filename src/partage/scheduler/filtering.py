"""Partage's own verbs, filter and prioritize: the best few nodes, and what they are worth.

kube-scheduler reads our answer more slowly than we make it, so it is kept short: the best nodes
only, and reasons only when nothing fits. Then every node gets one, because a node without a reason
counts as one on which evicting somebody cannot help. The same is said of nodes on which the pod can
never run, so that nobody is evicted for nothing.

Reasons take a while on a large cluster, and others are served meanwhile. What changed since is
looked at again in the last step, so that all reasons are true of one moment: that of the answer.

Bytes come in, bytes go out; HTTP is somebody else's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterator

import msgspec

from partage.core import demands, errors, refusals
from partage.scheduler import deciding, nominations, questions, texts, wire

_ARGS = msgspec.json.Decoder(wire.SetArgs)
_AT_ONCE = 32  # nodes between two breaths; each takes about 0.1 ms if no other looks like it
_BEST = 10  # kube-scheduler's highest score of an extender


class Filter:
    """Answers filter and prioritize."""

    def __init__(
        self,
        decider: deciding.Decider,
        asked: questions.Questions,
        *,
        limit: int,
        limit_without_preference: int | None = None,
        nominated: nominations.Nominations | None = None,
    ) -> None:
        self._decider = decider
        self._questions = asked
        self._limit = limit  # 0: all
        self._plain_limit = limit if limit_without_preference is None else limit_without_preference
        self._nominations = nominated

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
        limit = self._limit if args.pod.prefers else self._plain_limit
        asking = _Asking(args, args.pod, demand, names, limit)
        steps = self._decider.mirror.fleet.prepare(demand)
        if steps is not None:
            return self._prepared(asking, steps)
        return self._chosen(asking)

    async def _prepared(self, asking: _Asking, steps: Iterator[None]) -> bytes:
        """The same for a demand whose like was never seen: all nodes are looked at, in turns."""
        for _ in steps:
            await asyncio.sleep(0)
        result = self._chosen(asking)
        return wire.encode(result) if isinstance(result, wire.FilterResult) else await result

    def _chosen(self, asking: _Asking) -> wire.FilterResult | Awaitable[bytes]:
        verdict = self._decider.choose(asking.pod, asking.demand, asking.names, asking.limit)
        known = len(self._decider.mirror.nodes.keys())
        uid = asking.pod.metadata.uid
        question = self._questions.note(uid, asking.names, known, len(verdict.nodes))
        if verdict.nodes:
            return _accepted(asking.args, verdict.nodes)
        if verdict.placed:
            return _placed(asking, verdict.placed)
        if question.partial and self._nominations is not None:
            named = asking.pod.status.nominated_node_name
            self._nominations.missed(asking.pod, asking.demand, asking.names, named)
        return self._refused(asking, question)

    async def _refused(self, asking: _Asking, question: questions.Question) -> bytes:
        """A reason for each node; if one has got room meanwhile, that is the answer."""
        fleet = self._decider.mirror.fleet
        part = texts.PART.format(asked=question.asked, known=question.known)
        reasons = _Reasons(part if question.partial else "")
        moment = fleet.moment
        for i, (name, code) in enumerate(fleet.reasons(asking.demand, asking.names)):
            reasons.add(name, code)
            if i % _AT_ONCE == 0:
                await asyncio.sleep(0)
        # From here on nothing else happens until the answer is made.
        again = reasons.missing(asking.names, fleet.changed(moment))
        if again:
            verdict = self._decider.choose(asking.pod, asking.demand, again, asking.limit)
            if verdict.nodes:
                return wire.encode(_accepted(asking.args, verdict.nodes))
            if verdict.placed in asking.names:
                return wire.encode(_accepted(asking.args, [verdict.placed]))
            if verdict.placed:
                return wire.encode(_placed(asking, verdict.placed))
            for name, code in fleet.reasons(asking.demand, again):
                reasons.add(name, code)
        return wire.encode(reasons.result())


class _Asking(msgspec.Struct, frozen=True):
    """A question that was read."""

    args: wire.SetArgs
    pod: wire.PreferringPod
    demand: demands.PodDemand
    names: Collection[str]
    limit: int


def _placed(asking: _Asking, node: str) -> wire.FilterResult:
    reasons = dict.fromkeys(asking.names, texts.PLACED.format(node=node))
    return wire.FilterResult(node_names=[], failed_nodes=reasons)


class _Reasons:
    """Why each node will not do, now or ever."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._now: dict[str, str] = {}
        self._never: dict[str, str] = {}

    def add(self, name: str, code: refusals.Code) -> None:
        """In place of what was said of the node before."""
        self._now.pop(name, None)
        self._never.pop(name, None)
        (self._never if code.never else self._now)[name] = texts.REASONS[code] + self._part

    def missing(self, names: Collection[str], changed: set[str] | None) -> set[str]:
        """The nodes whose reason is not known, or may not be true any more."""
        if changed is None:
            return set(names)
        return {n for n in names if n in changed or (n not in self._now and n not in self._never)}

    def result(self) -> wire.FilterResult:
        """The answer."""
        return wire.FilterResult(
            node_names=[], failed_nodes=self._now, failed_and_unresolvable_nodes=self._never
        )


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
