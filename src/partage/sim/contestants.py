"""Contestants: the policies that can be simulated, by name.

The core's policies and the simpler baselines decide through a fleet, exactly as in a cluster: the
best node, a hold on its cards, a confirmation.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import msgspec

from partage.core import cards, demand_mix, errors, fleet, grants
from partage.core.policies import binpack, contract, priced, spread
from partage.sim import baselines, fgd
from partage.sim.simulation import Factory, Placement
from partage.sim.traces import TracePod


def factory(name: str) -> Factory:
    """What makes a contestant of this name."""
    if name not in _FACTORIES:
        choices = ", ".join(sorted(_FACTORIES))
        raise errors.InputError(f"unknown policy {name!r}", instead=f"choose from {choices}")
    return _FACTORIES[name]


def names() -> list[str]:
    """All that can be simulated."""
    return sorted(_FACTORIES)


class ByFleet:
    """A policy that decides through a fleet."""

    def __init__(self, policy: contract.Policy[Any], nodes: Sequence[cards.Node]) -> None:
        self._fleet = fleet.Fleet(policy)
        self._nodes = {node.name: node for node in nodes}
        self._placed = 0
        for node in nodes:
            self._fleet.set_node(node)

    def choose(self, pod: TracePod, among: Container[str]) -> Placement | None:
        fits = self._fleet.best(pod.demand, limit=1, among=among)
        chosen = self._fleet.place(pod.demand, fits[0]) if fits else None
        if chosen is None:
            return None
        return fits[0], chosen[0] if chosen else ()

    def settle(self, pod: TracePod, placement: Placement | None) -> None:
        if placement is None:
            return
        name, positions = placement
        self._placed += 1
        owner = grants.Pod(str(self._placed))
        held = self._fleet.hold(owner, pod.demand, name, expires_at=0)
        if not isinstance(held, fleet.Hold) or _positions(held.grant) != positions:
            raise errors.LedgerError(
                f"pod {pod.name} was placed on other cards of {name} than {positions}"
            )
        self._fleet.confirm(owner.uid)
        self._use(name, pod)

    def _use(self, name: str, pod: TracePod) -> None:
        before = self._nodes[name]
        node = msgspec.structs.replace(
            before,
            free_cpu_milli=(before.free_cpu_milli or 0) - pod.demand.cpu_milli,
            free_main_mib=(before.free_main_mib or 0) - pod.demand.main_mib,
        )
        self._nodes[name] = node
        self._fleet.set_node(node)


class Learning(ByFleet):
    """The priced policy, which learns from what arrives, placed or not."""

    def __init__(self, nodes: Sequence[cards.Node]) -> None:
        super().__init__(priced.Priced(), nodes)
        self._mix = demand_mix.Mix()

    def settle(self, pod: TracePod, placement: Placement | None) -> None:
        super().settle(pod, placement)
        self._mix.add(pod.demand)
        if self._mix.due:
            lesson = priced.learn(self._mix, self._fleet.states())
            self._mix.learned()
            for _ in self._fleet.set_policy(priced.Priced(lesson)):
                pass  # there is time, so all ranks are made anew before the next pod


def _positions(grant: grants.Grant) -> tuple[int, ...]:
    return tuple(share.index for c in grant.containers for share in c.shares)


_FACTORIES: dict[str, Factory] = {
    "priced": lambda nodes, _pods: Learning(nodes),
    "binpack": lambda nodes, _pods: ByFleet(binpack.Binpack(), nodes),
    "spread": lambda nodes, _pods: ByFleet(spread.Spread(), nodes),
    "gpushare": lambda nodes, _pods: ByFleet(baselines.GpushareRule(nodes), nodes),
    "bestfit": lambda nodes, _pods: ByFleet(baselines.BestFit(), nodes),
    "fgd": fgd.Fgd,
}
