"""Known totals: what is written on the namespaces; a sink for a reflector.

What the namespaces have of their totals is not known here: this service does not watch pods. So it
can say what a namespace may never have, and not what has to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from partage.core import totals
from partage.dialects import namespaces


class KnownTotals:
    """The namespaces that have a total."""

    def __init__(self, set_total: Callable[[str, totals.Total | None], None]) -> None:
        self._set_total = set_total
        self._names: set[str] = set()

    def put(self, namespace: namespaces.Namespace) -> None:
        """A namespace is there, with this total or none."""
        self._set(namespace.metadata.name, namespaces.read(namespace).total)

    def drop(self, name: str) -> None:
        """A namespace is gone."""
        self._set(name, None)

    def keys(self) -> Collection[str]:
        """The names of namespaces with a total."""
        return self._names

    def _set(self, name: str, total: totals.Total | None) -> None:
        if total is None:
            self._names.discard(name)
        else:
            self._names.add(name)
        self._set_total(name, total)
