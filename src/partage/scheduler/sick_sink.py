"""The sink for lists of sick cards: ConfigMaps ``unhealthy-gpu-<node>`` in kube-system.

``data.gpus`` has the indexes, separated by commas, as for gpushare. There a token that is no number
means card 0; here it is reported and ignored.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from partage.scheduler.mirror import Mirror

_SICK = "unhealthy-gpu-"
_MOST_TOKENS = 4096


class SickList(msgspec.Struct, frozen=True):
    """A ConfigMap, as far as it can name sick cards."""

    class Metadata(msgspec.Struct, frozen=True):
        """Its name tells the node."""

        name: str = ""

    metadata: Metadata = Metadata()
    data: dict[str, str] = {}


class SickSink:
    """What is known of sick cards."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._cards: dict[str, frozenset[int]] = {}  # by node
        self._wrong: dict[str, list[str]] = {}  # by node that has a list: what is no index in it

    def put(self, found: SickList) -> None:
        name = found.metadata.name
        if not name.startswith(_SICK):
            return
        node = name.removeprefix(_SICK)
        indexes, self._wrong[node] = _indexes(found.data.get("gpus", ""))
        self._set(node, indexes)
        self.judge(node)

    def drop(self, name: str) -> None:
        node = name.removeprefix(_SICK)
        self._wrong.pop(node, None)
        self._set(node, frozenset())
        self.judge(node)

    def judge(self, node: str) -> None:
        """Say what is wrong with a node's list: what is no index, or that there is no such node."""
        if node not in self._wrong:
            text = ""
        elif self._mirror.fleet.state(node) is None:
            text = f"there is no node {node}"
        else:
            wrong = ", ".join(self._wrong[node])
            text = f"data.gpus: {wrong}: not the index of a card; ignored" if wrong else ""
        self._mirror.problems.set(f"configmap kube-system/{_SICK}{node}", text)

    def keys(self) -> Collection[str]:
        return {_SICK + node for node in self._wrong}

    def cards(self, node: str) -> frozenset[int]:
        """The indexes of a node's sick cards."""
        return self._cards.get(node, frozenset())

    def _set(self, node: str, indexes: frozenset[int]) -> None:
        if indexes == self.cards(node):
            return
        if indexes:
            self._cards[node] = indexes
        else:
            self._cards.pop(node, None)
        self._mirror.set_node(node)


def _indexes(text: str) -> tuple[frozenset[int], list[str]]:
    """The indexes in a comma-separated list, and what is none."""
    good, wrong = set(), []
    for token in map(str.strip, text.split(",", _MOST_TOKENS) if text.strip() else ()):
        if token.isascii() and token.isdigit() and len(token) < 6:
            good.add(int(token))
        else:
            wrong.append(repr(token[:40]))
    return frozenset(good), wrong[:8]
