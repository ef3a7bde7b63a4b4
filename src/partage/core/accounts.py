"""Accounts: the namespaces that have a total, each with what its grants come to.

An inventory keeps them, so that there is no grant that is counted on a card and not here. Total and
sums are one object: a namespace cannot have a total without its sums being right. Namespaces
without a total have no account; all that they cost is one look into a dictionary.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable

from partage.core import grants, totals


class Account:
    """The total of one namespace, and what it has of it: grants and holds alike."""

    __slots__ = ("namespace", "total", "used")

    def __init__(self, namespace: str, total: totals.Total, used: totals.Sums) -> None:
        self.namespace = namespace
        self.total = total
        self.used = used

    def excess(
        self, charge: totals.Sums, *, less: totals.Sums = totals.NOTHING
    ) -> totals.Excess | None:
        """Why it may not have this much more, once it has so much less; None: it may."""
        return totals.excess(self.namespace, self.total, self.used - less, charge)


class Accounts:
    """All of them, by namespace."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, Account] = {}
        self.get = self._by_namespace.get  # None: the namespace may have what there is

    def set_total(
        self, namespace: str, total: totals.Total | None, present: Iterable[grants.Grant]
    ) -> None:
        """Give a namespace a total, or none any more; ``present`` are the grants of all."""
        account = self._by_namespace.get(namespace)
        if total is None:
            self._by_namespace.pop(namespace, None)
        elif account is not None:
            account.total = total
        else:
            theirs = (totals.of(grant) for grant in present if grant.pod.namespace == namespace)
            used = sum(theirs, totals.NOTHING)
            self._by_namespace[namespace] = Account(namespace, total, used)

    def add(self, grant: grants.Grant) -> None:
        """Count a grant that was made."""
        account = self._by_namespace.get(grant.pod.namespace)
        if account is not None:
            account.used += totals.of(grant)

    def remove(self, grant: grants.Grant) -> None:
        """Give back what a grant was charged with."""
        account = self._by_namespace.get(grant.pod.namespace)
        if account is not None:
            account.used -= totals.of(grant)

    def items(self) -> ItemsView[str, Account]:
        """Namespaces and their accounts."""
        return self._by_namespace.items()
