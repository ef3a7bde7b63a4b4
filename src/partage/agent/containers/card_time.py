"""Card time: how the time of one card is divided among its tenants, as a pure function.

The node's policy says how, for all of them; a tenant can have another one by its PriorityClass, and
a tighter one by its pod's own word. Policies that divide (equal, slots, weighted) never give away
more than the card has, and nobody gets less than a thousandth, below which the fence does not hold.

Two things come on top. Offline tenants yield to online ones: they name the seats that go first, and
the fence does the rest. Tenants of high priority have the part of the card that the node's label
sets aside for them, and the others may use it while it is idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from partage.core import demands
from partage.dialects import compute_policies
from partage.dialects.compute_policies import Policy
from partage.fence.store import layout, limits

LEAST_MILLIONTHS = layout.WHOLE // 1000
_BEST_EFFORT = limits.Time(mode=limits.Mode.BEST_EFFORT)


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant of the card, and what was said of its time."""

    name: str
    seat: int
    percent: int = 0  # granted; 0: no part of the time was set aside
    mode: demands.ComputeMode = demands.ComputeMode.BEST_EFFORT
    ceiling_percent: int = 0
    qos: demands.Qos = demands.Qos.NORMAL
    policy: Policy | None = None  # its own, in place of the node's
    weight: int = 1
    high_priority: bool = False


class ClassRule(msgspec.Struct, frozen=True, kw_only=True):
    """What the administrator says of the pods of a PriorityClass; None: nothing."""

    policy: Policy | None = None
    qos: demands.Qos | None = None
    weight: int | None = None


NO_RULE = ClassRule()


def ruled(
    tenant: Tenant,
    node: compute_policies.OfNode,
    rule: ClassRule,
    said: compute_policies.OfContainer,
) -> Tenant:
    """The tenant with what its class and its pod say; a pod can only have itself held tighter."""
    policy = rule.policy or node.policy
    if said.policy is not None and _is_tighter(said.policy, policy, tenant):
        policy = said.policy
    return msgspec.structs.replace(
        tenant,
        policy=policy,
        qos=rule.qos or tenant.qos,
        weight=rule.weight or said.weight,
        high_priority=said.high_priority and node.priority_percent > 0,
    )


def rates(tenants: Sequence[Tenant], node: compute_policies.OfNode) -> dict[str, limits.Time]:
    """How the time of each tenant of a card is limited, by name."""
    high = [tenant for tenant in tenants if tenant.high_priority]
    others = [tenant for tenant in tenants if not tenant.high_priority]
    times = _divided(others, node.slots)
    if high:
        times = _beside_priority(times, node.priority_percent)
        times |= _of_priority(high, node.priority_percent)
    return _ordered(tenants, times)


def _is_tighter(chosen: Policy, policy: Policy | None, tenant: Tenant) -> bool:
    """Whether a pod's own choice limits it more than the policy that it is under."""
    if policy is None:  # as it asks
        held = limits.requested_time(tenant.percent, tenant.mode).mode
        policy = _AS_ASKED.get(held, Policy.BEST_EFFORT)
    order = (*compute_policies.TIGHTER, Policy.BEST_EFFORT)
    return policy in order and order.index(chosen) < order.index(policy)


_AS_ASKED = {limits.Mode.FIXED: Policy.FIXED, limits.Mode.BURST: Policy.BURST}


def _divided(tenants: Sequence[Tenant], slots: int) -> dict[str, limits.Time]:
    """By each tenant's policy; those that divide count all tenants."""
    weights = _parts([tenant.weight for tenant in tenants])
    equal = layout.WHOLE // max(len(tenants), 1)
    slot = layout.WHOLE // max(len(tenants), slots)
    return {
        tenant.name: _time(
            tenant, {Policy.EQUAL: equal, Policy.SLOTS: slot, Policy.WEIGHTED: by_weight}
        )
        for tenant, by_weight in zip(tenants, weights, strict=True)
    }


def _time(tenant: Tenant, parts: Mapping[Policy, int]) -> limits.Time:
    if tenant.policy is None:
        return limits.requested_time(tenant.percent, tenant.mode, tenant.ceiling_percent)
    if tenant.policy in parts:
        return limits.Time(mode=limits.Mode.FIXED, share_millionths=parts[tenant.policy])
    if tenant.policy is Policy.BEST_EFFORT or not tenant.percent:
        return _BEST_EFFORT  # not limited, but counted: neighbours' shares are more exact by that
    mode = demands.ComputeMode(tenant.policy)
    return limits.requested_time(tenant.percent, mode, tenant.ceiling_percent)


def _parts(weights: Sequence[int]) -> list[int]:
    """The card's millionths by weight; who would get less than the least gets that."""
    least: set[int] = set()
    while True:
        rest = layout.WHOLE - LEAST_MILLIONTHS * len(least)
        total = sum(weight for i, weight in enumerate(weights) if i not in least)
        parts = [
            LEAST_MILLIONTHS if i in least else rest * weight // total
            for i, weight in enumerate(weights)
        ]
        small = {i for i, part in enumerate(parts) if part < LEAST_MILLIONTHS}
        if not small:
            return parts
        least |= small


def _of_priority(high: Sequence[Tenant], percent: int) -> dict[str, limits.Time]:
    part = percent * limits.MILLIONTHS_PER_PERCENT // len(high)
    time = limits.Time(mode=limits.Mode.FIXED, share_millionths=part)
    return {tenant.name: time for tenant in high}


def _beside_priority(times: Mapping[str, limits.Time], percent: int) -> dict[str, limits.Time]:
    """What the others keep while tenants of high priority work; the rest is for idle moments."""
    rest = layout.WHOLE - percent * limits.MILLIONTHS_PER_PERCENT
    return {name: _reduced(time, rest, len(times)) for name, time in times.items()}


def _reduced(time: limits.Time, rest: int, count: int) -> limits.Time:
    """A tenant's part of what is left, by its share, or as one of so many if it has none."""
    held = time.mode in (limits.Mode.FIXED, limits.Mode.BURST)
    share = time.share_millionths * rest // layout.WHOLE if held else rest // count
    ceilings = {
        limits.Mode.FIXED: time.share_millionths,
        limits.Mode.BURST: time.ceiling_millionths,
    }
    return limits.Time(
        mode=limits.Mode.BURST,
        share_millionths=max(LEAST_MILLIONTHS, share),
        ceiling_millionths=ceilings.get(time.mode, layout.WHOLE),
    )


def _ordered(tenants: Sequence[Tenant], times: Mapping[str, limits.Time]) -> dict[str, limits.Time]:
    """Offline tenants yield to online ones; both have to be counted for that."""
    seats = frozenset(limits.place(t.seat) for t in tenants if t.qos is demands.Qos.ONLINE)
    offline = {tenant.name for tenant in tenants if tenant.qos is demands.Qos.OFFLINE}
    if not seats or not offline:
        return dict(times)
    online = {tenant.name for tenant in tenants if tenant.qos is demands.Qos.ONLINE}
    counted = {
        name: _BEST_EFFORT if time.mode is limits.Mode.NONE and name in online | offline else time
        for name, time in times.items()
    }
    return {
        name: msgspec.structs.replace(time, yields_to=seats) if name in offline else time
        for name, time in counted.items()
    }
