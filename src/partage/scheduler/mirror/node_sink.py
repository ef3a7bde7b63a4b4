"""The sink for nodes: their cards before any is ruled out, and what they have of CPU and memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from partage.core import cards
from partage.dialects import loads, memory_units, node_readings, nodes
from partage.scheduler.mirror import problems

log = logging.getLogger(__name__)


class Changed(Protocol):
    """Called when a node is new, or other than before."""

    def __call__(self, name: str, /, *, other_cards: bool) -> None:
        """``other_cards``: whether its cards are not those that it had before."""


class NodeSink:
    """What is known of nodes."""

    def __init__(
        self,
        problems: problems.Problems,
        unit: memory_units.Unit,
        *,
        changed: Changed,
        removed: Callable[[str], None],
        opened: Callable[[str], None],
        seen: Callable[[nodes.Node], None],
    ) -> None:
        self._problems = problems
        self._unit = unit
        self._changed = changed
        self._removed = removed
        self._opened = opened  # no cordon and no taint keeps pods away from it any more
        self._seen = seen  # each time that it is read, whether it changed or not
        self._reported: dict[str, cards.Node] = {}  # before any card is ruled out
        self._allocatable: dict[str, loads.Load] = {}
        self._closed: dict[str, nodes.Spec] = {}  # those that are cordoned or tainted

    def put(self, node: nodes.Node) -> None:
        try:
            self._put(node)
        except Exception:  # a mistake of ours; one odd object must not stop all decisions
            log.exception("node %s could not be read", node.metadata.name)
            text = "it could not be read; Partage goes on with what it knew before"
            self._problems.set(f"node {node.metadata.name}", text)

    def _put(self, node: nodes.Node) -> None:
        name = node.metadata.name
        report = node_readings.read(node)
        self._problems.set(f"node {name}", "; ".join(report.problems))
        self._note_unit(name, node)
        self._note_closed(name, node.spec)
        self._seen(node)
        allocatable = loads.amounts(node.status.allocatable)
        before = self._reported.get(name)
        if before == report.node and self._allocatable.get(name) == allocatable:
            return  # a heartbeat
        self._reported[name] = report.node
        self._allocatable[name] = allocatable
        self._changed(name, other_cards=before is None or before.cards != report.node.cards)

    def drop(self, name: str) -> None:
        self._reported.pop(name, None)
        self._allocatable.pop(name, None)
        self._closed.pop(name, None)
        self._note_unit(name, None)
        self._problems.set(f"node {name}", "")
        self._removed(name)

    def keys(self) -> Collection[str]:
        return self._reported.keys()

    def closed(self, name: str) -> nodes.Spec | None:
        """What keeps pods away from a node; None if nothing does."""
        return self._closed.get(name)

    def facts(self, name: str, *, used: loads.Load, unhealthy: frozenset[int]) -> cards.Node | None:
        """The node for the fleet, less what its pods use; None if there is no such node."""
        node = self._reported.get(name)
        if node is None:
            return None
        allocatable = self._allocatable[name]
        return msgspec.structs.replace(
            node,
            cards=nodes.judged(node.cards, unhealthy) if unhealthy else node.cards,
            free_cpu_milli=allocatable.cpu_milli - used.cpu_milli,
            free_main_mib=allocatable.main_mib - used.main_mib,
        )

    def _note_unit(self, name: str, node: nodes.Node | None) -> None:
        """The unit that a node counts memory in; it may change the unit of the cluster."""
        changed = self._unit.vote(name, node)
        for voter in list(self._unit.voters()) if changed else (name,):
            self._problems.set(f"node {voter} (unit)", self._unit.complaint(voter))

    def _note_closed(self, name: str, spec: nodes.Spec) -> None:
        if spec.unschedulable or any(taint.effect in nodes.REPELLING for taint in spec.taints):
            self._closed[name] = spec
        elif self._closed.pop(name, None) is not None:
            self._opened(name)
