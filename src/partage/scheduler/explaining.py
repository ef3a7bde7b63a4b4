"""Explaining: why a pod is pending, on each node and card, and what would fit instead.

The reasons are those of filter, in the same words, with the numbers that filter leaves out; and
what kube-scheduler rules out before it asks, as far as it is plain: cordoned nodes and taints. It
is for people, so it may take a while; it never stops the decisions for longer than a few nodes do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from partage.core import demands, errors, fitting, grants, plans, refusals
from partage.core.rooms import NodeState
from partage.dialects import nodes, pods, registry
from partage.scheduler import binds, questions, texts
from partage.scheduler import mirror as mirrors

_SHOWN = 50  # nodes, nearest first
_AT_ONCE = 16  # nodes between two breaths
_UNSCHEDULABLE = nodes.Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")


class Toleration(msgspec.Struct, frozen=True):
    """A taint, or several, that a pod does not mind."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: nodes.Taint) -> bool:
        """Whether it is meant for this taint, by Kubernetes' rules."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class Condition(msgspec.Struct, frozen=True):
    """What a scheduler wrote on the pod, for one."""

    type: str = ""
    status: str = ""
    message: str = ""


class Spec(pods.Spec, frozen=True, rename="camel"):
    """What the pod runs and where, and which taints it does not mind."""

    tolerations: tuple[Toleration, ...] = ()


class Status(pods.Status, frozen=True, rename="camel"):
    """What was last said of the pod."""

    conditions: tuple[Condition, ...] = ()


class Pod(pods.Pod, frozen=True, rename="camel"):
    """A pod with what people are told about, too."""

    spec: Spec = Spec()
    status: Status = Status()


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


async def explain(
    mirror: mirrors.Mirror,
    pod: Pod,
    *,
    lives: binds.Binds | None = None,
    asked: questions.Questions | None = None,
) -> Explanation:
    """All that can be said about a pod; without an extender nothing is known of its promises."""
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
    fits = mirror.fleet.best(demand, limit=0)
    open_ones = [node for node in fits if not _keeps_away(mirror, node, pod)]
    if granted is not None:
        summary = _promised(granted, None if lives is None else lives.of(pod.metadata.uid))
        return Explanation(pod=name, summary=summary, fits=open_ones[:_SHOWN], warnings=warnings)
    if open_ones:
        summary = f"it fits on {open_ones[0]}{_waits_for(pod, asked)}"
        return Explanation(pod=name, summary=summary, fits=open_ones[:_SHOWN], warnings=warnings)
    return await _refused(mirror, pod, demand, fits, warnings)


def _bound(mirror: mirrors.Mirror, pod: pods.Pod) -> str:
    node = pod.spec.node_name
    if not mirror.pods.is_guessed(pod.metadata.uid, node):
        return f"it is bound to node {node}"
    return (
        f"it is bound to node {node}, but nothing readable says what it has there; "
        "it is counted in the worst case, and 'partage inspect' says what is wrong"
    )


def _promised(grant: grants.Grant, life: binds.Life | None) -> str:
    match life:
        case binds.Sent():
            return f"it is being bound to node {grant.node}"
        case binds.InDoubt():
            return (
                f"it may be bound to node {grant.node}: the API server did not answer, "
                "and the pod is asked until it is known"
            )
        case _:
            return f"node {grant.node} is held for it, until kube-scheduler binds it"


def _waits_for(pod: Pod, asked: questions.Questions | None) -> str:
    """A pod that fits and waits all the same waits for a scheduler; what is known of that."""
    question = None if asked is None else asked.about(pod.metadata.uid)
    if asked is not None and question is not None:
        which = f"{question.asked} of {question.known} nodes"
        return f"; kube-scheduler asked {asked.age_s(question):.0f} s ago, about {which}"
    tried = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
    if tried is not None and tried.status == "False":
        return f"; when a scheduler looked last, it said: {tried.message or 'nothing'}"
    if not pod.spec.scheduler_name:
        return ""
    return (
        "; no scheduler has said anything about it yet: "
        f"does one have the name {pod.spec.scheduler_name!r} (spec.schedulerName)?"
    )


def _keeps_away(mirror: mirrors.Mirror, node: str, pod: Pod) -> str:
    """What keeps a pod from a node, cards aside; empty if nothing that is known does."""
    closed = mirror.nodes.closed(node)
    if closed is None:
        return ""
    if closed.unschedulable and not _tolerates(pod, _UNSCHEDULABLE):
        return f"node {node} is cordoned; 'kubectl uncordon {node}' opens it"
    for taint in closed.taints:
        if taint.effect in nodes.REPELLING and not _tolerates(pod, taint):
            return f"node {node} has the taint {taint}, which the pod does not tolerate"
    return ""


def _tolerates(pod: Pod, taint: nodes.Taint) -> bool:
    return any(toleration.covers(taint) for toleration in pod.spec.tolerations)


async def _refused(
    mirror: mirrors.Mirror,
    pod: Pod,
    demand: demands.PodDemand,
    fits: list[str],
    warnings: tuple[str, ...],
) -> Explanation:
    closed = [_closed(mirror, node, pod) for node in fits]
    found: list[refusals.Refusal] = []
    states = list(mirror.fleet.states())
    for start in range(0, len(states), _AT_ONCE):
        some = states[start : start + _AT_ONCE]
        found += mirror.fleet.refuse(demand, [state.node.name for state in some])
        await asyncio.sleep(0)
    nearest = refusals.furthest(found)
    found.sort(key=refusals.closeness, reverse=True)
    never = nearest.never and bool(found)  # a node may come
    summary = f"{'never' if never else 'not now'}: {nearest.text}"
    return Explanation(
        pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
        summary=f"not now: {closed[0].text}" if closed else summary,
        would_fit="" if closed else await _would_fit(mirror, demand),
        refused=len(closed) + len(found),
        nodes=[*closed, *map(_reason, found)][:_SHOWN],
        warnings=warnings,
    )


def _closed(mirror: mirrors.Mirror, node: str, pod: Pod) -> NodeReason:
    """A node on which the pod would fit, and where it may not go."""
    text = _keeps_away(mirror, node, pod)
    reason = "the node is cordoned" if "cordoned" in text else "the node has a taint"
    return NodeReason(node, reason, text, never=False, shortages=())


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
