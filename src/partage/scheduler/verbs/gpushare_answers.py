"""Answers to filter as gpushare's extender gives them: a drop-in replacement.

Names keep the order of the question, every rejected node has its reason, in gpushare's words, and
the cards within a node are chosen its way (least free memory that is enough, then lowest index)
where neither pod nor node says otherwise. Unlike there, pods of every dialect are served.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.core import demands, fleet
from partage.scheduler import wire
from partage.scheduler.verbs import filter_history, filter_texts, filter_verb

VERSION = "0.1.0"  # what gpushare's extender answers
CARDS_BY = "binpack"
TIMEOUT_S = 4.5  # its configuration names no httpTimeout, and kube-scheduler's own is 5 s

_ARGS = msgspec.json.Decoder(wire.Args)


class GpushareAnswers:
    """The answers of ``/gpushare-scheduler/filter``."""

    cards_by = CARDS_BY

    def __init__(self, fleet: fleet.Fleet) -> None:
        self._fleet = fleet

    def read(self, body: bytes) -> wire.Args:
        return wire.decode(_ARGS, body, "node_names", "nodes")

    def limit(self, _pod: wire.PreferringPod) -> int:
        return 0

    def accepted(self, question: filter_verb.Question, nodes: list[str]) -> wire.FilterResult:
        fits = set(nodes)
        return _result(
            question,
            {name: self._reason(name) for name in question.names if name not in fits},
        )

    def placed(self, question: filter_verb.Question, node: str) -> wire.FilterResult:
        text = filter_texts.PLACED.format(node=node)
        return _result(question, {name: text for name in question.names if name != node})

    def without_cards(self, question: filter_verb.Question) -> wire.FilterResult:
        """Wherever there is a healthy card; a cordon keeps away only who asks for cards."""
        failed = (name for name in question.names if not self._has_healthy_card(name))
        return _result(question, {name: self._reason(name) for name in failed})

    def not_allowed(self, question: filter_verb.Question, problem: str) -> wire.FilterResult:
        return _result(question, dict.fromkeys(question.names, problem))

    def refused(
        self,
        question: filter_verb.Question,
        demand: demands.PodDemand,
        _last: filter_history.LastFilter,
    ) -> wire.FilterResult:
        """In gpushare's words; it has none for the total of a namespace."""
        space = question.pod.metadata.namespace
        beyond = self._fleet.beyond(demand, space, question.names)
        return _result(
            question,
            {
                name: beyond[name].text if name in beyond else self._reason(name)
                for name in question.names
            },
        )

    def _has_healthy_card(self, name: str) -> bool:
        state = self._fleet.state(name)
        return state is not None and any(room.card.healthy for room in state.rooms)

    def _reason(self, name: str) -> str:
        state = self._fleet.state(name)
        if state is None:
            return filter_texts.GPUSHARE_NOT_FOUND.format(name=name)
        if not state.rooms:
            return filter_texts.GPUSHARE_SKIP.format(name=name)
        return filter_texts.GPUSHARE_INSUFFICIENT


def _result(question: filter_verb.Question, reasons: Mapping[str, str]) -> wire.FilterResult:
    """The nodes that did not fail, in the order of the question, and why the others did."""
    whole, names = question.args.nodes, question.args.node_names
    if whole is not None and names is None:
        items = dict(zip(wire.names(whole), whole.items, strict=True))
        names = list(items)
        kept = {"items": [item for name, item in items.items() if name not in reasons]}
    else:
        kept = None
    order = [name for name in names or () if name not in reasons]
    failed = {name: reasons[name] for name in names or () if name in reasons}
    return wire.FilterResult(nodes=kept, node_names=order, failed_nodes=failed)
