"""The sink for namespaces: the totals that are written on them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from partage.core import totals
from partage.dialects import namespaces
from partage.scheduler.mirror import problems


class NamespaceSink:
    """What is known of namespaces: of those that say nothing of totals, nothing."""

    def __init__(
        self,
        problems: problems.Problems,
        *,
        changed: Callable[[str, totals.Total | None], None],
    ) -> None:
        self.read = True  # false where nobody lets us read them, so that no total holds
        self._problems = problems
        self._changed = changed  # called with the name of a namespace and its new total
        self._readings: dict[str, namespaces.Reading] = {}  # of those with annotations of ours

    def put(self, namespace: namespaces.Namespace) -> None:
        self._set(namespace.metadata.name, namespaces.read(namespace))

    def drop(self, name: str) -> None:
        self._set(name, _NOTHING)

    def keys(self) -> Collection[str]:
        return self._readings.keys()

    def _set(self, name: str, reading: namespaces.Reading) -> None:
        before = self._readings.pop(name, _NOTHING)
        if reading != _NOTHING:
            self._readings[name] = reading
        self._problems.set(f"namespace {name}", reading.problem)
        if reading.total != before.total:
            self._changed(name, reading.total)


_NOTHING = namespaces.Reading()
