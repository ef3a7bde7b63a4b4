"""Registrations: whether the kubelet still counts on a plugin that has registered with it.

Before 1.37 the last plugin to register for a resource has it, and the one before is told nothing:
the kubelet even goes on listening to its list. When the newcomer goes, the kubelet counts no units
at all, and the first plugin still looks as if all were well. So there are two signs to look for: a
socket of another agent for the same resource, younger than ours, and the units that the kubelet
counts, if they are not those that it was told.

While another plugin has the resource, nothing is done but to say so: two that take it from each
other by turns would be worse than either. When nobody has it, it is registered again. From 1.37 on
the kubelet does that by itself, and counts our units again.
"""

from __future__ import annotations

import enum

_TIMES = 2  # a list that is on its way looks like another plugin's, once


class Standing(enum.Enum):
    """How a resource stands with the kubelet."""

    HELD = "held"
    TAKEN = "taken"  # another plugin has it
    LOST = "lost"  # nobody has it


def judged(healthy: frozenset[str], counted: frozenset[str], rival: str) -> Standing:
    """By the units that we call healthy, those that the kubelet counts, and a younger socket."""
    if rival:
        return Standing.TAKEN
    if counted == healthy:
        return Standing.HELD
    return Standing.TAKEN if counted else Standing.LOST


class Record:
    """How one registration stands: news counts only if it is seen twice in a row.

    Good news, too. When a rival goes, its socket is gone a moment before the kubelet notices: one
    look in that moment sees our units counted, and the next one that nobody's are.
    """

    def __init__(self) -> None:
        self.standing = Standing.HELD
        self._seen = Standing.HELD
        self._times = 0

    def see(self, standing: Standing) -> None:
        """Take one look into account."""
        self._times = self._times + 1 if standing is self._seen else 1
        self._seen = standing
        if self._times >= _TIMES:
            self.standing = standing
