"""Memory units: whether the cluster counts memory in GiB or in MiB, where names do not say it.

Nothing in a request for ``aliyun.com/gpu-mem`` says it, so it is a setting; unless it says "auto".
Then the nodes decide: the numbers that a plugin reports for a card can only be one of the two.
While nodes disagree, as they do in the middle of a change, the majority counts, and the others are
reported. GiB wins a draw, so that the answer does not depend on which node was seen first. A node
that offers nothing at the moment has no vote: its kubelet goes on reporting the capacity of a
plugin that has ended.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable

import msgspec

from partage.dialects import contract, nodes, registry


class Unit:
    """The unit that demands are read in."""

    def __init__(self, settings: contract.Settings, *, fixed: bool = False) -> None:
        self.settings = settings
        self._fixed = fixed
        self._votes: dict[str, registry.NodeUnit] = {}
        self._counts: collections.Counter[int] = collections.Counter()

    def vote(self, name: str, node: nodes.Node | None) -> bool:
        """Count a node's unit; whether the cluster's unit is another one now."""
        before = self._votes.pop(name, None)
        if before is not None:
            self._counts[before.unit_mib] -= 1
        vote = registry.node_unit(node) if node is not None else None
        if vote is not None:
            self._votes[name] = vote
            self._counts[vote.unit_mib] += 1
        return not self._fixed and self._decide()

    def complaint(self, name: str) -> str:
        """What is wrong with a node's unit, if anything."""
        chosen_mib, vote = self.settings.memory_unit_mib, self._votes.get(name)
        if vote is None or vote.unit_mib == chosen_mib:
            return ""
        unit, chosen = contract.unit_name(vote.unit_mib), contract.unit_name(chosen_mib)
        problem = f"it counts {vote.resource} in {unit}, and the cluster in {chosen}"
        return f"{problem}; start its agent or plugin with --memory-unit {chosen}"

    def voters(self) -> Iterable[str]:
        """The nodes whose unit is known."""
        return self._votes.keys()

    def _decide(self) -> bool:
        units_mib = contract.UNITS_MIB.values()
        most = max(units_mib, key=lambda unit: (self._counts[unit], unit))
        if not self._votes or most == self.settings.memory_unit_mib:
            return False
        self.settings = msgspec.structs.replace(self.settings, memory_unit_mib=most)
        return True
