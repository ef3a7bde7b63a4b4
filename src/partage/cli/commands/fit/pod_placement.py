"""Where a pod would go, and why: it is placed by the same steps as in a cluster."""

from __future__ import annotations

import msgspec

from partage.core import demands, errors, fleet, grants, refusals
from partage.core.placement import plans
from partage.dialects import contract, pod_claims, pods, registry

SETTINGS = contract.Settings()


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one pod."""

    pod: str
    dialect: str
    asks: str
    grant: grants.Grant | None
    refusal: refusals.Refusal | None
    reason: str
    warnings: tuple[str, ...] = ()  # about what is allowed, but has no effect


def demand_of(pod: pods.Pod) -> demands.PodDemand | None:
    """What a pod asks for; None if it asks for no card."""
    if pod_claims.annotation(pod):
        raise errors.InputError(
            f"pod {pod.metadata.name} has what its claim has, and where that is only its cluster "
            "knows",
            instead="ask there: partage explain, or kubectl get egpuc",
        )
    try:
        return registry.demand(pod, SETTINGS)
    except errors.DemandError as error:
        what = f"pod {pod.metadata.name}: {error.what}"
        raise errors.InputError(what, instead=error.instead) from error


def decide(trial_fleet: fleet.Fleet, pod: pods.Pod, demand: demands.PodDemand) -> Decision:
    """Place a pod on the best of the nodes, where it stays; or say why it does not fit."""
    names = trial_fleet.best(demand)
    if not names:
        refusal = refusals.furthest(trial_fleet.refuse(demand))
        when = "never" if refusal.never else "not now"
        return _decision(pod, demand, None, refusal, f"{when}: {refusal.text}")
    had_room = _cards_with_room(trial_fleet, demand, names[0])
    held = trial_fleet.hold(pod.identity, demand, names[0], expires_at=0)
    if isinstance(held, refusals.Refusal):
        raise errors.LedgerError(f"pod {pod.metadata.name} should fit on {names[0]}: {held.text}")
    grant = trial_fleet.confirm(pod.identity.uid)
    return _decision(pod, demand, grant, None, _reason(trial_fleet, grant, had_room))


def _decision(
    pod: pods.Pod,
    demand: demands.PodDemand,
    grant: grants.Grant | None,
    refusal: refusals.Refusal | None,
    reason: str,
) -> Decision:
    return Decision(
        pod=pod.metadata.name,
        dialect=demand.dialect,
        asks="; ".join(demands.described(container.demand) for container in demand.containers),
        grant=grant,
        refusal=refusal,
        reason=reason,
        warnings=tuple(map(str, registry.warnings(pod, SETTINGS))),
    )


def _cards_with_room(trial_fleet: fleet.Fleet, demand: demands.PodDemand, node: str) -> str:
    """How much choice there was on the node, for a pod whose containers share their cards."""
    state = trial_fleet.state(node)
    plan = plans.Plan(demand)
    if state is None or plan.bundle is None:
        return ""
    fitting = plan.bundle.fitting(state.open_rooms, offline=plan.offline)
    return f"{len(fitting)} of {len(state.rooms)} cards had room; "


def _reason(trial_fleet: fleet.Fleet, grant: grants.Grant, had_room: str) -> str:
    state = trial_fleet.state(grant.node)
    used = {share.index for container in grant.containers for share in container.shares}
    left = ", ".join(
        f"{room.free_mib} MiB on card {room.card.index}"
        for room in (state.rooms if state else ())
        if room.card.index in used
    )
    return f"{had_room}{grant.policy} leaves {left}"
