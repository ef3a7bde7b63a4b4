"""Explaining: why a pod is pending, on each node and card, and what would fit instead.

The reasons are those of filter, in the same words, with the numbers that filter leaves out. It is
for people, so it may take a while; it never stops the decisions for longer than a few nodes take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from partage.core import demands, errors, fitting, grants, plans, refusals
from partage.core.rooms import NodeState
from partage.dialects import pods, registry
from partage.scheduler import mirror as mirrors
from partage.scheduler import texts

_SHOWN = 50  # nodes, nearest first
_AT_ONCE = 16  # nodes between two breaths


class NodeReason(msgspec.Struct, frozen=True):
    """Why one node does not do."""

    node: str
    reason: str  # as filter says it
    text: str  # exactly
    never: bool
    shortages: tuple[refusals.Shortage, ...]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one pod's chances."""

    pod: str
    summary: str
    grant: grants.Grant | None = None  # if it is bound
    fits: list[str] = []  # nodes, best first
    would_fit: str = ""
    refused: int = 0  # nodes
    nodes: list[NodeReason] = []
    warnings: tuple[str, ...] = ()


async def explain(mirror: mirrors.Mirror, pod: pods.Pod) -> Explanation:
    """All that can be said about a pod."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    try:
        demand = mirror.demand(pod)
        warnings = registry.warnings(pod, mirror.settings)
    except errors.DemandError as error:
        return Explanation(pod=name, summary=f"never: {error}")
    if demand is None:
        return Explanation(pod=name, summary="it asks for no GPU; Partage has no say in it")
    granted = mirror.fleet.grant_of(pod.metadata.uid)
    if pod.spec.node_name:
        summary = _bound(mirror, pod)
        return Explanation(pod=name, summary=summary, grant=granted, warnings=warnings)
    fits = mirror.fleet.best(demand, limit=_SHOWN)
    if granted is not None:
        summary = f"node {granted.node} is held for it, and it is about to be bound"
        return Explanation(pod=name, summary=summary, fits=fits, warnings=warnings)
    if fits:
        summary = f"it fits on {fits[0]}{_unasked(pod)}"
        return Explanation(pod=name, summary=summary, fits=fits, warnings=warnings)
    return await _refused(mirror, name, demand, warnings)


def _bound(mirror: mirrors.Mirror, pod: pods.Pod) -> str:
    node = pod.spec.node_name
    if not mirror.pods.is_guessed(pod.metadata.uid, node):
        return f"it is bound to node {node}"
    return (
        f"it is bound to node {node}, but nothing readable says what it has there; "
        "it is counted in the worst case, and 'partage inspect' says what is wrong"
    )


def _unasked(pod: pods.Pod) -> str:
    """A pod that fits and waits all the same waits for a scheduler."""
    if not pod.spec.scheduler_name:
        return ""
    return (
        "; if it stays pending, no scheduler asked about it: "
        f"does one have the name {pod.spec.scheduler_name!r} (spec.schedulerName)?"
    )


async def _refused(
    mirror: mirrors.Mirror, name: str, demand: demands.PodDemand, warnings: tuple[str, ...]
) -> Explanation:
    found: list[refusals.Refusal] = []
    states = list(mirror.fleet.states())
    for start in range(0, len(states), _AT_ONCE):
        some = states[start : start + _AT_ONCE]
        found += mirror.fleet.refuse(demand, [state.node.name for state in some])
        await asyncio.sleep(0)
    nearest = refusals.furthest(found)
    found.sort(key=refusals.closeness, reverse=True)
    return Explanation(
        pod=name,
        summary=f"{'never' if nearest.never else 'not now'}: {nearest.text}",
        would_fit=await _would_fit(mirror, demand),
        refused=len(found),
        nodes=[_reason(refusal) for refusal in found[:_SHOWN]],
        warnings=warnings,
    )


def _reason(refusal: refusals.Refusal) -> NodeReason:
    return NodeReason(
        refusal.node, texts.REASONS[refusal.code], refusal.text, refusal.never, refusal.shortages
    )


async def _would_fit(mirror: mirrors.Mirror, demand: demands.PodDemand) -> str:
    """The most memory with which the pod would fit now, if it asks for memory in one place."""
    if len(demand.containers) != 1 or not demand.containers[0].demand.memory_mib:
        return ""
    asked = demand.containers[0].demand.memory_mib
    kinds = {state.look_id: state for state in mirror.fleet.states()}
    least, most = 0, asked - 1  # least fits (trivially), above most nothing does
    while least < most:
        middle = (least + most + 1) // 2
        if await _anywhere(mirror, _with_memory(demand, middle), kinds.values()):
            least = middle
        else:
            most = middle - 1
    return f"{least} MiB instead of {asked}" if least else ""


async def _anywhere(
    mirror: mirrors.Mirror, demand: demands.PodDemand, states: Iterable[NodeState]
) -> bool:
    plan = plans.Plan(demand)
    for i, state in enumerate(states):
        policy = mirror.fleet.card_policy(state, demand)
        if state.most_free_mib >= plan.least_mib and fitting.place(state, plan, policy) is not None:
            return True
        if i % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return False


def _with_memory(demand: demands.PodDemand, memory_mib: int) -> demands.PodDemand:
    (container,) = demand.containers
    replace = msgspec.structs.replace
    asked = replace(container.demand, memory_mib=memory_mib)
    return replace(demand, containers=(replace(container, demand=asked),))
