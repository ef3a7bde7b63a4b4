"""The mix of demands: what has been asked for so far, as counts of shapes.

The priced policy learns from this what the next pods will probably look like. It is told nothing
beforehand. Counts age: when the total reaches a bound, all are halved, so that a mix follows a
cluster whose users change, and its size stays bounded whatever tenants write.
"""

from __future__ import annotations

from collections.abc import Iterator

from partage.core import demands

MOST_PODS = 1 << 16
MOST_SHAPES = 1024

_FIRST_LESSON = 20
_LONGEST_PAUSE = 1000
_LONGEST_PAUSE_WITH_MODELS = 200  # which models are scarce changes faster than what is asked for


class Mix:
    """Counts of the shapes that arrived."""

    def __init__(self) -> None:
        self._counts: dict[demands.PodDemand, float] = {}
        self._arrived = 0
        self._next_lesson = _FIRST_LESSON
        self._names_models = False

    def add(self, pod: demands.PodDemand) -> None:
        """Count an arrival."""
        shape = demands.shape(pod, True, False)
        self._counts[shape] = self._counts.get(shape, 0) + 1
        self._arrived += 1
        self._names_models = self._names_models or any(c.demand.models for c in shape.containers)
        if len(self._counts) > MOST_SHAPES or self._arrived % MOST_PODS == 0:
            self._age()

    @property
    def due(self) -> bool:
        """Whether so much arrived since the last lesson that prices should be made anew.

        That is after 20 pods, then each time there are half as many more, at most 1000 apart (or
        200, if pods name the models they want).
        """
        return self._arrived >= self._next_lesson

    def learned(self) -> None:
        """Prices were made from what is here now."""
        longest = _LONGEST_PAUSE_WITH_MODELS if self._names_models else _LONGEST_PAUSE
        self._next_lesson = self._arrived + min(self._arrived // 2, longest)

    def copy(self) -> Mix:
        """The same counts, to be read while others are added."""
        twin = Mix()
        twin._counts = dict(self._counts)
        return twin

    def __iter__(self) -> Iterator[tuple[demands.PodDemand, float]]:
        return iter(self._counts.items())

    def __len__(self) -> int:
        return self._arrived

    def _age(self) -> None:
        halved = ((shape, count / 2) for shape, count in self._counts.items())
        self._counts = {shape: count for shape, count in halved if count >= 1}
