"""Chances: whether what somebody asks for can ever be had, by what is known of the cluster.

The same is said of pods and of claims: no card can ever hold it, or its namespace may not have it
even if it had nothing else. Whether there is room now is not the affair of admission.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from partage.core import demands, refusals, totals
from partage.dialects import contract

_RAISE = "ask for less, or let an administrator raise the total of the namespace"


class Cluster(Protocol):
    """What is known of the cluster."""

    @property
    def settings(self) -> contract.Settings:
        """How requests are read."""

    def never(self, demand: demands.PodDemand, /) -> refusals.Refusal | None:
        """Why no node can ever take this; None if one can."""

    def beyond(self, demand: demands.PodDemand, namespace: str, /) -> totals.Excess | None:
        """Why the namespace may not have this even if it had nothing else; None if it may."""


class Chances(msgspec.Struct, frozen=True):
    """Why something can never be had, or what it has to wait for; empty: nothing is known."""

    never: str = ""
    waits: str = ""
    by_total: bool = False  # a card could hold it, and the namespace may not have it


GOOD = Chances()


def of(cluster: Cluster, demand: demands.PodDemand, namespace: str, *, asker: str) -> Chances:
    """The chances of a demand; the ``asker`` is a pod or a claim, for the texts."""
    never = cluster.never(demand)
    if never is not None:
        return Chances(f"no node of this cluster can ever take it: {never.text}")
    beyond = cluster.beyond(demand, namespace)
    if beyond is None:
        return GOOD
    text = beyond.told(f"this {asker}")
    if beyond.never:
        return Chances(f"{text}; {_RAISE}", by_total=True)
    return Chances(waits=f"{text}; the {asker} waits")
