"""Filter: the one path from a request of kube-scheduler to the nodes that it may choose from.

Partage's own verb and gpushare's both take it: read the request, find out what the pod asks for,
decide, remember what was asked. Only the form and the words of the answer are different, and these
are the two :class:`Answers`: :mod:`.own_answers` and :mod:`.gpushare_answers`.

Bytes come in, bytes go out; HTTP is served by :mod:`partage.scheduler.http_server`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Set
from typing import Protocol

import msgspec

from partage.core import demands, errors
from partage.scheduler import decisions, nominations, wire
from partage.scheduler.mirror import mirror as mirrors
from partage.scheduler.verbs import filter_history


class Question(msgspec.Struct, frozen=True):
    """A request that was read: may this pod go to one of these nodes?"""

    args: wire.Args | wire.SetArgs
    pod: wire.PreferringPod
    names: Set[str]


class Answers(Protocol):
    """The form and the words of an answer."""

    cards_by: str  # the policy that chooses the cards of a pod that names none; empty: the default

    def read(self, body: bytes) -> wire.Args | wire.SetArgs:
        """The request; raises WireError."""

    def limit(self, pod: wire.PreferringPod) -> int:
        """How many nodes an answer has at most; 0: all that fit."""

    def accepted(self, question: Question, nodes: list[str]) -> wire.FilterResult:
        """The pod fits on these nodes, best first."""

    def placed(self, question: Question, node: str) -> wire.FilterResult:
        """The pod is bound to this node, or may be."""

    def without_cards(self, question: Question) -> wire.FilterResult:
        """The pod asks for no card."""

    def not_allowed(self, question: Question, problem: str) -> wire.FilterResult:
        """The request itself is not allowed, so no node will ever do."""

    def refused(
        self, question: Question, demand: demands.PodDemand, last: filter_history.LastFilter
    ) -> wire.FilterResult | Awaitable[wire.FilterResult]:
        """The pod fits on none of the nodes."""


class Filter:
    """Answers filter."""

    def __init__(
        self,
        mirror: mirrors.Mirror,
        decider: decisions.Decider,
        history: filter_history.FilterHistory,
        answers: Answers,
        *,
        nominations: nominations.Nominations | None = None,
    ) -> None:
        self._mirror = mirror
        self._decider = decider
        self._history = history
        self._answers = answers
        self._nominations = nominations

    def filter(self, body: bytes) -> bytes | Awaitable[bytes]:
        """The nodes to choose from; an answer that takes its time is awaitable."""
        try:
            result = self._result(self._answers.read(body))
        except wire.WireError as error:
            result = wire.FilterResult(error=str(error))
        return wire.encode(result) if isinstance(result, wire.FilterResult) else _encoded(result)

    def _result(
        self, args: wire.Args | wire.SetArgs
    ) -> wire.FilterResult | Awaitable[wire.FilterResult]:
        if args.pod is None:
            return wire.FilterResult(error="arg or pod is nil")
        names = wire.asked_names(args)
        if names is None:
            return wire.FilterResult(error="cannot get node names")
        question = Question(args, args.pod, names)
        try:
            demand = self._mirror.demand(args.pod, self._answers.cards_by)
        except errors.DemandError as error:
            return self._answers.not_allowed(question, str(error))
        if demand is None:
            return self._answers.without_cards(question)
        if demand.by_claim:
            return self._decided(question, demand)
        steps = self._mirror.fleet.prepare(demand)
        if steps is not None:
            return self._prepared(question, demand, steps)
        return self._decided(question, demand)

    async def _prepared(
        self, question: Question, demand: demands.PodDemand, steps: Iterator[None]
    ) -> wire.FilterResult:
        """The same for a new shape of demand: all nodes are rated, and others run in between."""
        for _ in steps:
            await asyncio.sleep(0)
        result = self._decided(question, demand)
        return result if isinstance(result, wire.FilterResult) else await result

    def _decided(
        self, question: Question, demand: demands.PodDemand
    ) -> wire.FilterResult | Awaitable[wire.FilterResult]:
        pod, names = question.pod, question.names
        verdict = self._decider.choose(pod, demand, names, self._answers.limit(pod))
        last = self._history.note(
            pod.metadata.uid, names, len(self._mirror.nodes.keys()), len(verdict.nodes)
        )
        if verdict.placed:
            return self._answers.placed(question, verdict.placed)
        if verdict.nodes:
            return self._answers.accepted(question, verdict.nodes)
        if verdict.waits_for:
            return self._answers.not_allowed(question, verdict.waits_for)
        if last.partial and self._nominations is not None:
            self._nominations.missed(pod, demand, names, pod.status.nominated_node_name)
        return self._answers.refused(question, demand, last)


async def _encoded(result: Awaitable[wire.FilterResult]) -> bytes:
    return wire.encode(await result)
