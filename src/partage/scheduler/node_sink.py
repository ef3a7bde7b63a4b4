"""The sink for nodes: their cards before anybody ruled one out, and what they have of CPU."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from partage.core import cards
from partage.dialects import loads, nodes, registry

if TYPE_CHECKING:
    from partage.scheduler.mirror import Mirror


log = logging.getLogger(__name__)


class NodeSink:
    """What is known of nodes."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._found: dict[str, cards.Node] = {}  # before anybody ruled out a card
        self._room: dict[str, loads.Load] = {}  # allocatable
        self._closed: dict[str, nodes.Spec] = {}  # those that are cordoned or tainted

    def put(self, node: nodes.Node) -> None:
        try:
            self._put(node)
        except Exception:  # a mistake of ours; one odd object must not stop all decisions
            log.exception("node %s could not be read", node.metadata.name)
            text = "it could not be read; what was known of it before counts"
            self._mirror.problems.set(f"node {node.metadata.name}", text)

    def _put(self, node: nodes.Node) -> None:
        name = node.metadata.name
        found = registry.found(node)
        self._mirror.problems.set(f"node {name}", "; ".join(found.problems))
        self._mirror.vote(name, node)
        self._note_closed(name, node.spec)
        room = loads.amounts(node.status.allocatable)
        before = self._found.get(name)
        if before == found.node and self._room.get(name) == room:
            return  # a heartbeat
        self._found[name] = found.node
        self._room[name] = room
        self._mirror.set_node(name)
        self._mirror.sick.judge(name)
        if before is None or before.cards != found.node.cards:
            self._mirror.settle(name)

    def drop(self, name: str) -> None:
        self._found.pop(name, None)
        self._room.pop(name, None)
        self._closed.pop(name, None)
        self._mirror.vote(name, None)
        self._mirror.problems.set(f"node {name}", "")
        self._mirror.fleet.remove_node(name)
        self._mirror.sick.judge(name)

    def keys(self) -> Collection[str]:
        return self._found.keys()

    def closed(self, name: str) -> nodes.Spec | None:
        """What keeps pods away from a node; None if nothing does."""
        return self._closed.get(name)

    def facts(self, name: str) -> cards.Node | None:
        """The node for the fleet; None if there is none."""
        found = self._found.get(name)
        if found is None:
            return None
        room, used = self._room[name], self._mirror.pods.used(name)
        sick = self._mirror.sick.cards(name)
        return msgspec.structs.replace(
            found,
            cards=nodes.judged(found.cards, sick) if sick else found.cards,
            free_cpu_milli=room.cpu_milli - used.cpu_milli,
            free_main_mib=room.main_mib - used.main_mib,
        )

    def _note_closed(self, name: str, spec: nodes.Spec) -> None:
        if spec.unschedulable or any(taint.effect in nodes.REPELLING for taint in spec.taints):
            self._closed[name] = spec
        elif self._closed.pop(name, None) is not None:
            self._mirror.freed(name)
