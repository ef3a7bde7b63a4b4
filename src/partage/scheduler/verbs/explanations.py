"""Explanations: why a pod is pending, on each node and card, and what would fit instead.

The reasons are those of filter, in the same words, with the numbers that filter leaves out; the
total of its namespace; and what kube-scheduler rules out before it asks, as far as it is plain:
cordoned nodes and taints. It is for people, so it may take a while; it never stops the decisions
for longer than a few nodes do.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Collection, Iterable

import msgspec

from partage.core import demands, errors, grants, refusals, totals
from partage.core.placement import fitting, plans
from partage.core.placement.rooms import NodeState
from partage.dialects import namespaces, nodes, pods, registry
from partage.scheduler.binds import bind_states
from partage.scheduler.claims import claim_grants
from partage.scheduler.mirror import mirror as mirrors
from partage.scheduler.verbs import filter_history, filter_texts

_SHOWN = 50  # nodes, nearest first
_AT_ONCE = 16  # nodes between two breaths
_UNSCHEDULABLE = nodes.Taint("node.kubernetes.io/unschedulable", effect="NoSchedule")


class Toleration(msgspec.Struct, frozen=True):
    """A taint, or several, that a pod tolerates."""

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
    """What the pod runs and where, and which taints it tolerates."""

    tolerations: tuple[Toleration, ...] = ()


class Status(pods.Status, frozen=True, rename="camel"):
    """What was last said of the pod."""

    conditions: tuple[Condition, ...] = ()


class Pod(pods.Pod, frozen=True, rename="camel"):
    """A pod with all that an explanation is about."""

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
    binds: bind_states.Binds | None = None,
    history: filter_history.FilterHistory | None = None,
    claims: claim_grants.ClaimGrants | None = None,
) -> Explanation:
    """All that can be said about a pod; the command line knows no binds and no history."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    try:
        demand = mirror.demand(pod)
        warnings = tuple(map(str, registry.warnings(pod, mirror.settings)))
    except errors.DemandError as error:
        return Explanation(pod=name, summary=f"never: {error}")
    if demand is None:
        return Explanation(
            pod=name, summary="it asks for no GPU, so Partage does not decide about it"
        )
    granted = mirror.fleet.grant_of(pod.metadata.uid)
    if pod.spec.node_name:
        summary = _bound(mirror, pod)
        return Explanation(pod=name, summary=summary, grant=granted, warnings=warnings)
    if demand.by_claim:
        summary, fits = _by_claim(pod, demand, claims)
        return Explanation(pod=name, summary=summary, grant=granted, fits=fits, warnings=warnings)
    fits = mirror.fleet.best(demand, limit=0)
    open_nodes = [node for node in fits if not _keeps_away(mirror, node, pod)]
    if granted is not None:
        summary = _promised(granted, None if binds is None else binds.of(pod.metadata.uid))
        return Explanation(pod=name, summary=summary, fits=open_nodes[:_SHOWN], warnings=warnings)
    beyond = mirror.fleet.beyond(demand, pod.metadata.namespace, set(open_nodes))
    within = [node for node in open_nodes if node not in beyond]
    if within:
        summary = f"it fits on {within[0]}{_waits_for(pod, history)}"
        return Explanation(pod=name, summary=summary, fits=within[:_SHOWN], warnings=warnings)
    closed = [_closed(mirror, node, pod) for node in fits if node not in beyond]
    return await _refused(mirror, pod, demand, _Fitting(beyond, closed), warnings)


def _by_claim(
    pod: pods.Pod, demand: demands.PodDemand, claims: claim_grants.ClaimGrants | None
) -> tuple[str, list[str]]:
    """What a pod with claims waits for, and the node to which it could go."""
    if claims is None:
        names = ", ".join(c.demand.claim for c in demand.containers)
        return f"it waits for its claims ({names}), which {_UNREAD}", []
    grant = claims.grant(pod, demand)
    if isinstance(grant, claim_grants.Waits):
        return f"it waits: {grant.text}", []
    return f"its claims are bound on node {grant.node}, and it fits there", [grant.node]


_UNREAD = (
    "cannot be read: apply deploy/claims.yaml if `kubectl get egpuc` does not know them, or get "
    "the right to list elasticgpuclaims, elasticgpus and elasticgpuclasses"
)


def _bound(mirror: mirrors.Mirror, pod: pods.Pod) -> str:
    node = pod.spec.node_name
    if not mirror.pods.is_guessed(pod.metadata.uid, node):
        return f"it is bound to node {node}"
    return (
        f"it is bound to node {node}, but its record of what it has there cannot be read; "
        "it is counted in the worst case, and 'partage inspect' says what is wrong"
    )


def _promised(grant: grants.Grant, state: bind_states.State | None) -> str:
    match state:
        case bind_states.Sent():
            return f"it is being bound to node {grant.node}"
        case bind_states.InDoubt():
            return (
                f"it may be bound to node {grant.node}: the API server did not answer, "
                "and Partage asks again until it is known"
            )
        case _:
            return f"its cards on node {grant.node} are held until kube-scheduler binds it"


def _waits_for(pod: Pod, history: filter_history.FilterHistory | None) -> str:
    """What is known of the scheduler that a pod waits for, although it fits."""
    last = None if history is None else history.about(pod.metadata.uid)
    if history is not None and last is not None:
        which = f"{last.asked_nodes} of {last.cluster_nodes} nodes"
        return f"; kube-scheduler asked {history.age_s(last):.0f} s ago, about {which}"
    tried = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
    if tried is not None and tried.status == "False":
        return f"; the last attempt to schedule it ended with: {tried.message or 'no message'}"
    if not pod.spec.scheduler_name:
        return ""
    return (
        "; no scheduler has tried it yet: "
        f"is there one named {pod.spec.scheduler_name!r} (spec.schedulerName)?"
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


class _Fitting(msgspec.Struct, frozen=True):
    """The nodes whose cards would do, and what is in the way there."""

    beyond: dict[str, totals.Excess]  # the total of the namespace
    closed: list[NodeReason]  # a cordon or a taint

    @property
    def summary(self) -> str:
        """What is nearest to being out of the way; empty if no node's cards would do."""
        if self.beyond:
            return _over(min(self.beyond.values(), key=_DEARNESS))
        return f"not now: {self.closed[0].text}" if self.closed else ""

    @property
    def reasons(self) -> list[NodeReason]:
        over = [refusals.over_total(excess, node) for node, excess in self.beyond.items()]
        return [*map(_reason, over), *self.closed]


_DEARNESS = operator.attrgetter("never", "asks")


def _over(excess: totals.Excess) -> str:
    when = "never" if excess.never else "not now"
    if excess.kind is totals.Kind.TOTAL:
        return f"{when}: {excess.text}"
    raised = f"when the namespace's {namespaces.ANNOTATIONS[excess.kind]} is raised"
    waits = raised if excess.never else f"when others of them end, or {raised}"
    return f"{when}: {excess.text}; it can be bound {waits}"


async def _refused(
    mirror: mirrors.Mirror,
    pod: Pod,
    demand: demands.PodDemand,
    fitting_nodes: _Fitting,
    warnings: tuple[str, ...],
) -> Explanation:
    refused: list[refusals.Refusal] = []
    states = list(mirror.fleet.states())
    for start in range(0, len(states), _AT_ONCE):
        part = states[start : start + _AT_ONCE]
        refused += mirror.fleet.refuse(demand, [state.node.name for state in part])
        await asyncio.sleep(0)
    refused.sort(key=refusals.closeness, reverse=True)
    reasons = [*fitting_nodes.reasons, *map(_reason, refused)]
    summary = fitting_nodes.summary or await _without_room(mirror, pod, demand, refused)
    return Explanation(
        pod=f"{pod.metadata.namespace}/{pod.metadata.name}",
        summary=summary,
        would_fit="" if fitting_nodes.closed else await _would_fit(mirror, pod, demand),
        refused=len(reasons),
        nodes=reasons[:_SHOWN],
        warnings=warnings,
    )


async def _without_room(
    mirror: mirrors.Mirror, pod: Pod, demand: demands.PodDemand, refused: list[refusals.Refusal]
) -> str:
    """Why no node's cards do; or that it would not help if they did."""
    nearest = refusals.furthest(refused)
    if nearest.never and refused:  # without any, a node may come
        return f"never: {nearest.text}"
    alone = await _excess_alone(mirror, pod, demand)
    return f"not now: {nearest.text}" if alone is None else _over(alone)


async def _excess_alone(
    mirror: mirrors.Mirror, pod: Pod, demand: demands.PodDemand
) -> totals.Excess | None:
    """Why the namespace could not have the pod if there were no other; None: it could."""
    account = mirror.fleet.account(pod.metadata.namespace)
    if account is None:
        return None
    plan, excesses = plans.Plan(demand), []
    for i, state in enumerate(_kinds(mirror)):
        granted = _granted(mirror, pod, plan, state.emptied())
        if granted is not None:
            excesses.append(account.excess(totals.of(granted), less=account.used))
        if i % _AT_ONCE == 0:
            await asyncio.sleep(0)
    dear = [excess for excess in excesses if excess is not None and excess.never]
    return min(dear, key=_DEARNESS) if dear and len(dear) == len(excesses) else None


def _kinds(mirror: mirrors.Mirror) -> Collection[NodeState]:
    """A node for each look: the others like it have the same answers."""
    return {state.look_id: state for state in mirror.fleet.states()}.values()


def _closed(mirror: mirrors.Mirror, node: str, pod: Pod) -> NodeReason:
    """A node on which the pod would fit, and where it may not go."""
    text = _keeps_away(mirror, node, pod)
    reason = "the node is cordoned" if "cordoned" in text else "the node has a taint"
    return NodeReason(node, reason, text, never=False, shortages=())


def _reason(refusal: refusals.Refusal) -> NodeReason:
    return NodeReason(
        refusal.node,
        filter_texts.REASONS[refusal.code],
        refusal.text,
        refusal.never,
        refusal.shortages,
    )


async def _would_fit(mirror: mirrors.Mirror, pod: Pod, demand: demands.PodDemand) -> str:
    """The most memory with which the pod would fit now, if it asks for memory in one place."""
    if len(demand.containers) != 1 or not demand.containers[0].demand.memory_mib:
        return ""
    asked_mib = demand.containers[0].demand.memory_mib
    kinds = _kinds(mirror)
    least, most = 0, asked_mib - 1  # least fits (trivially), above most nothing does
    while least < most:
        middle = (least + most + 1) // 2
        if await _anywhere(mirror, pod, _with_memory(demand, middle), kinds):
            least = middle
        else:
            most = middle - 1
    return f"{least} MiB instead of {asked_mib}" if least else ""


async def _anywhere(
    mirror: mirrors.Mirror, pod: Pod, demand: demands.PodDemand, states: Iterable[NodeState]
) -> bool:
    plan = plans.Plan(demand)
    for i, state in enumerate(states):
        if state.most_free_mib >= plan.least_mib and _fits(mirror, pod, plan, state):
            return True
        if i % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return False


def _fits(mirror: mirrors.Mirror, pod: Pod, plan: plans.Plan, state: NodeState) -> bool:
    granted = _granted(mirror, pod, plan, state)
    return granted is not None and mirror.fleet.excess(granted) is None


def _granted(
    mirror: mirrors.Mirror, pod: Pod, plan: plans.Plan, state: NodeState
) -> grants.Grant | None:
    """What the pod would get on a node, its namespace aside; None if it does not fit."""
    policy = mirror.fleet.card_policy(state, plan.pod)
    chosen = fitting.place(state, plan, policy)
    if chosen is None:
        return None
    return fitting.grant(state, plan.pod, chosen, pod=pod.identity, policy=policy.name)


def _with_memory(demand: demands.PodDemand, memory_mib: int) -> demands.PodDemand:
    (container,) = demand.containers
    replace = msgspec.structs.replace
    smaller = replace(container.demand, memory_mib=memory_mib)
    return replace(demand, containers=(replace(container, demand=smaller),))
