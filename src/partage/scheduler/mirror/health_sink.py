"""The sink for lists of unhealthy cards: ConfigMaps ``unhealthy-gpu-<node>`` in kube-system.

``data.gpus`` has the indexes, separated by commas, as for gpushare. There a token that is not a
number means card 0; here it is reported and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from partage.scheduler.mirror import problems

_PREFIX = "unhealthy-gpu-"
_MOST_TOKENS = 4096


class UnhealthyList(msgspec.Struct, frozen=True):
    """A ConfigMap, as far as it can name unhealthy cards."""

    class Metadata(msgspec.Struct, frozen=True):
        """Its name contains the name of the node."""

        name: str = ""

    metadata: Metadata = Metadata()
    data: dict[str, str] = {}


class HealthSink:
    """What is known of unhealthy cards."""

    def __init__(
        self,
        problems: problems.Problems,
        *,
        has_node: Callable[[str], bool],
        changed: Callable[[str], None],
    ) -> None:
        self._problems = problems
        self._has_node = has_node
        self._changed = changed  # called with the name of a node whose list is another one now
        self._cards: dict[str, frozenset[int]] = {}  # by node
        self._wrong: dict[str, list[str]] = {}  # tokens that are not indexes, by node with a list

    def put(self, unhealthy: UnhealthyList) -> None:
        name = unhealthy.metadata.name
        if not name.startswith(_PREFIX):
            return
        node = name.removeprefix(_PREFIX)
        indexes, self._wrong[node] = _indexes(unhealthy.data.get("gpus", ""))
        self._set(node, indexes)
        self.judge(node)

    def drop(self, name: str) -> None:
        node = name.removeprefix(_PREFIX)
        self._wrong.pop(node, None)
        self._set(node, frozenset())
        self.judge(node)

    def judge(self, node: str) -> None:
        """Report what is wrong with a node's list: bad indexes, or that there is no such node."""
        if node not in self._wrong:
            text = ""
        elif not self._has_node(node):
            text = f"there is no node {node}"
        else:
            wrong = ", ".join(self._wrong[node])
            text = f"data.gpus: {wrong}: not the index of a card; ignored" if wrong else ""
        self._problems.set(f"configmap kube-system/{_PREFIX}{node}", text)

    def keys(self) -> Collection[str]:
        return {_PREFIX + node for node in self._wrong}

    def cards(self, node: str) -> frozenset[int]:
        """The indexes of a node's unhealthy cards."""
        return self._cards.get(node, frozenset())

    def _set(self, node: str, indexes: frozenset[int]) -> None:
        if indexes == self.cards(node):
            return
        if indexes:
            self._cards[node] = indexes
        else:
            self._cards.pop(node, None)
        self._changed(node)


def _indexes(text: str) -> tuple[frozenset[int], list[str]]:
    """The indexes in a comma-separated list, and the tokens that are not indexes."""
    indexes, wrong = set(), []
    for token in map(str.strip, text.split(",", _MOST_TOKENS) if text.strip() else ()):
        if token.isascii() and token.isdigit() and len(token) < 6:
            indexes.add(int(token))
        else:
            wrong.append(repr(token[:40]))
    return frozenset(indexes), wrong[:8]
