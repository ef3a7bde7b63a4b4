"""Nodes, fleets of a few of them, demands and grants, as short as a line of a test."""

from __future__ import annotations

from typing import Any

from partage.core import cards, demands, grants
from partage.core import fleet as fleets
from partage.core.policies import binpack, contract, priced, spread

GIB = 1024


def node(name: str = "n0", *memory_mib: int, **facts: object) -> cards.Node:
    """A node with cards of these sizes; facts go to every card."""
    made = tuple(
        cards.Card(uuid=f"{name}/{i}", index=i, memory_mib=size, **facts)  # type: ignore[arg-type]
        for i, size in enumerate(memory_mib)
    )
    return cards.Node(name=name, cards=made)


def fleet_of(*nodes: cards.Node, default: str = "binpack") -> fleets.Fleet:
    """A fleet with all policies."""
    policies: list[contract.Policy[Any]] = [binpack.Binpack(), spread.Spread(), priced.Priced()]
    policies.sort(key=lambda policy: policy.name != default)
    fleet = fleets.Fleet(*policies)
    for facts in nodes:
        fleet.set_node(facts)
    return fleet


def pod(*parts: demands.Demand, **terms: object) -> demands.PodDemand:
    """A pod with one app container per demand."""
    containers = tuple(demands.ContainerDemand(f"c{i}", demand) for i, demand in enumerate(parts))
    return demands.PodDemand(containers=containers, **terms)  # type: ignore[arg-type]


def share(memory_mib: int = 0, **more: object) -> demands.Demand:
    """A part of one card."""
    return demands.Demand(memory_mib=memory_mib, **more)  # type: ignore[arg-type]


def whole(count: int = 1, **more: object) -> demands.Demand:
    """Whole cards."""
    return demands.Demand(cards=count, exclusive=demands.Exclusive.CARD, **more)  # type: ignore[arg-type]


def grant(
    fleet: fleets.Fleet, uid: str, demand: demands.PodDemand, where: str = "n0"
) -> grants.Grant:
    """Place a pod that is known to fit."""
    held = fleet.hold(grants.Pod(uid, name=uid), demand, where, expires_at=0)
    assert isinstance(held, fleets.Hold), held
    return fleet.confirm(uid)


def places(granted: grants.Grant) -> list[list[int]]:
    """The card indexes of each container."""
    return [[share.index for share in container.shares] for container in granted.containers]
