"""Partage's own answers to filter: the best few nodes, or a reason for every node.

kube-scheduler reads an answer more slowly than Partage makes it, so it is kept short: the best
nodes only, and reasons only when nothing fits. Then every node gets one, because kube-scheduler
takes a node without a reason for one on which evicting pods cannot help. Nodes on which the pod can
never run are marked as such, so that no pod is evicted for nothing.

Reasons take a while on a large cluster, and others are served meanwhile. What changed since is
looked at again in the last step, so that all reasons are true of one moment: that of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set

import msgspec

from partage.core import demands, fleet, refusals, totals
from partage.scheduler import decisions, wire
from partage.scheduler.verbs import filter_history, filter_texts, filter_verb

_ARGS = msgspec.json.Decoder(wire.SetArgs)
_AT_ONCE = 32  # nodes between two breaths; each takes about 0.1 ms if no other looks like it


class OwnAnswers:
    """The answers of ``/scheduler/filter``."""

    cards_by = ""

    def __init__(
        self,
        fleet: fleet.Fleet,
        decider: decisions.Decider,
        *,
        limit: int,
        limit_without_preference: int | None = None,
    ) -> None:
        self._fleet = fleet
        self._decider = decider
        self._limit = limit  # 0: all
        self._plain_limit = limit if limit_without_preference is None else limit_without_preference

    def read(self, body: bytes) -> wire.SetArgs:
        return wire.decode(_ARGS, body, "node_names", "nodes")

    def limit(self, pod: wire.PreferringPod) -> int:
        return self._limit if pod.prefers else self._plain_limit

    def accepted(self, question: filter_verb.Question, nodes: list[str]) -> wire.FilterResult:
        """In the form of the question: by name, or with whole nodes."""
        whole = question.args.nodes
        if whole is None:
            return wire.FilterResult(node_names=nodes)
        by_name = dict(zip(wire.names(whole), whole.items, strict=True))
        kept = [by_name[name] for name in nodes if name in by_name]
        return wire.FilterResult(nodes={"items": kept}, node_names=nodes)

    def placed(self, question: filter_verb.Question, node: str) -> wire.FilterResult:
        if node in question.names:
            return self.accepted(question, [node])
        reasons = dict.fromkeys(question.names, filter_texts.PLACED.format(node=node))
        return wire.FilterResult(node_names=[], failed_nodes=reasons)

    def without_cards(self, question: filter_verb.Question) -> wire.FilterResult:
        return self.accepted(question, list(question.names))

    def not_allowed(self, question: filter_verb.Question, problem: str) -> wire.FilterResult:
        never = dict.fromkeys(question.names, problem)
        return wire.FilterResult(node_names=[], failed_and_unresolvable_nodes=never)

    async def refused(
        self,
        question: filter_verb.Question,
        demand: demands.PodDemand,
        last: filter_history.LastFilter,
    ) -> wire.FilterResult:
        """A reason for each node; if one has got room meanwhile, that is the answer."""
        part = filter_texts.PART.format(asked=last.asked_nodes, all=last.cluster_nodes)
        reasons, moment = _Reasons(part if last.partial else ""), self._fleet.moment
        for i, (name, code) in enumerate(self._fleet.reasons(demand, question.names)):
            reasons.add(name, code)
            if i % _AT_ONCE == 0:
                await asyncio.sleep(0)
        # From here on nothing else happens until the answer is made.
        stale = reasons.missing(question.names, self._fleet.changed(moment))
        return self._again(question, demand, stale, reasons) if stale else reasons.result()

    def _again(
        self,
        question: filter_verb.Question,
        demand: demands.PodDemand,
        names: Set[str],
        reasons: _Reasons,
    ) -> wire.FilterResult:
        """Decide once more, on the nodes that changed while the reasons were collected."""
        verdict = self._decider.choose(question.pod, demand, names, self.limit(question.pod))
        if verdict.placed:
            return self.placed(question, verdict.placed)
        if verdict.nodes:
            return self.accepted(question, verdict.nodes)
        for name, code in self._fleet.reasons(demand, names):
            reasons.add(name, code)
        # Nodes on which it fits have no reason by now, unless its namespace is in the way.
        space = question.pod.metadata.namespace
        for name, excess in self._fleet.beyond(demand, space, names).items():
            reasons.add_excess(name, excess)
        return reasons.result()


class _Reasons:
    """Why each node will not do, now or ever."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._now: dict[str, str] = {}
        self._never: dict[str, str] = {}

    def add(self, name: str, code: refusals.Code) -> None:
        """In place of what was said of the node before."""
        self._set(name, filter_texts.REASONS[code], never=code.never)

    def add_excess(self, name: str, excess: totals.Excess) -> None:
        """The same for a node on which only the total of its namespace is in the pod's way."""
        self._set(name, excess.text, never=excess.never)

    def missing(self, names: Set[str], changed: set[str] | None) -> Set[str]:
        """The nodes whose reason is not known, or may not be true any more."""
        if changed is None:
            return names
        return {n for n in names if n in changed or (n not in self._now and n not in self._never)}

    def _set(self, name: str, text: str, *, never: bool) -> None:
        self._now.pop(name, None)
        self._never.pop(name, None)
        (self._never if never else self._now)[name] = text + self._part

    def result(self) -> wire.FilterResult:
        """The answer."""
        return wire.FilterResult(
            node_names=[], failed_nodes=self._now, failed_and_unresolvable_nodes=self._never
        )
