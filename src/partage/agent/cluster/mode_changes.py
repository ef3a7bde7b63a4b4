"""Mode changes: what people are told when a node's label puts it into another mode under its pods.

Pods of the mode before go on to their end, with the cards and the memory that they were started
with, and what comes later is placed beside them. (Time is divided anew at once.) Whoever changed
the label should know that the node is not yet what the label says, and on whose account; so that is
told, once for each change.

A change that happens while no agent runs is not told: the labels before are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from partage.agent.pods import node_pods
from partage.dialects import node_readings, pods

_MOST_NAMES = 5  # of pods; the rest are counted


class ModeChanges:
    """Compares the labels of the node with those before."""

    def __init__(
        self,
        pods_of_node: node_pods.NodePods,
        *,
        outdated: Callable[[pods.Pod], bool],
        tell: Callable[[str], None],
    ) -> None:
        self._pods = pods_of_node
        self._outdated = outdated  # whether the node would not take a running pod as it is any more
        self._tell = tell
        self._before: Mapping[str, str] | None = None

    def look(self, labels: Mapping[str, str]) -> None:
        """The node has these labels; most of the time they are those that it had."""
        before, now = self._before, node_readings.mode_labels(labels)
        self._before = now
        if before is None or before == now:
            return
        running = (pod for pod in self._pods.by_uid.values() if not pods.ended(pod))
        left = [pod for pod in running if self._outdated(pod)]
        if left:
            self._tell(f"{changes(before, now)}; {kept(left)} until the end")


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """How labels differ, for people."""
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return "; ".join(
        f"label {name} is {now.get(name, 'gone')}, and was {before.get(name, 'not there')}"
        for name in names
    )


def kept(left: Sequence[pods.Pod]) -> str:
    """What becomes of pods of the mode before, for people."""
    names = sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in left)
    more = len(names) - _MOST_NAMES
    shown = ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
    if len(names) == 1:
        return f"1 pod of the mode before still runs ({shown}): it keeps its cards and its memory"
    return f"{len(names)} pods of the mode before still run ({shown}): they keep cards and memory"
