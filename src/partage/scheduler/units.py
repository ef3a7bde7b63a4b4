"""Units: whether the cluster counts ``aliyun.com/gpu-mem`` in GiB or in MiB.

Nothing in a request says it, so it is a setting; unless it says "auto". Then the nodes decide: the
numbers that gpushare's plugin reports for a card can only be one of the two. While nodes disagree,
as they do in the middle of a change, the majority counts, and the others are reported. GiB wins a
draw, so that the answer does not depend on which node was seen first. A node that offers nothing at
the moment has no vote: its kubelet goes on reporting the capacity of a plugin that has ended.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable

import msgspec

from partage.dialects import aliyun, base, nodes

_NAMES = {1: "MiB", 1024: "GiB"}


class Unit:
    """The unit that demands are read in."""

    def __init__(self, settings: base.Settings, *, fixed: bool = False) -> None:
        self.settings = settings
        self._fixed = fixed
        self._votes: dict[str, int] = {}
        self._counts: collections.Counter[int] = collections.Counter()

    def vote(self, name: str, node: nodes.Node | None) -> bool:
        """Take a node's word for its unit; whether the cluster's unit is another one now."""
        before = self._votes.pop(name, None)
        if before is not None:
            self._counts[before] -= 1
        unit = _unit(node) if node is not None else None
        if unit is not None:
            self._votes[name] = unit
            self._counts[unit] += 1
        return not self._fixed and self._decide()

    def complaint(self, name: str) -> str:
        """What is wrong with a node's unit, if anything."""
        mine, unit = self.settings.memory_unit_mib, self._votes.get(name)
        if unit is None or unit == mine:
            return ""
        found, wanted = _NAMES[unit], _NAMES[mine]
        problem = f"it counts {aliyun.MEMORY} in {found}, and the cluster in {wanted}"
        return f"{problem}; start its agent or plugin with --memory-unit {wanted}"

    def voters(self) -> Iterable[str]:
        """The nodes whose unit is known."""
        return self._votes.keys()

    def _decide(self) -> bool:
        most = max(_NAMES, key=lambda unit: (self._counts[unit], unit))
        if not self._votes or most == self.settings.memory_unit_mib:
            return False
        self.settings = msgspec.structs.replace(self.settings, memory_unit_mib=most)
        return True


def _unit(node: nodes.Node) -> int | None:
    count, amount = node.amount(aliyun.COUNT), node.amount(aliyun.MEMORY)
    if not count or not amount or not node.offers(aliyun.MEMORY):
        return None
    return nodes.unit_mib(amount // count)
