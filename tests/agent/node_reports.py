"""Reports of a node with two cards, and of containers on them."""

from __future__ import annotations

from typing import Any

from partage.agent import reports
from partage.core import cards, demands, grants
from partage.fence import usage
from partage.fence.store import limits

MIB = 1 << 20
NODE = "gpu-1"
FIRST = "GPU-00000000-0000-4000-8000-000000000001"
SECOND = "GPU-00000000-0000-4000-8000-000000000002"
CARDS = (
    cards.Card(uuid=FIRST, index=0, memory_mib=16384, model="Tesla T4"),
    cards.Card(uuid=SECOND, index=1, memory_mib=24576),
)


def share(uuid: str = FIRST, memory_mib: int = 4096, **more: Any) -> grants.Share:
    """A part of a card."""
    index = 1 if uuid == SECOND else 0
    return grants.Share(uuid=uuid, index=index, memory_mib=memory_mib, **more)


def container(
    *shares: grants.Share, name: str = "main", mode: str = "fixed", **more: Any
) -> grants.ContainerGrant:
    """A container; of its compute, the mode."""
    terms = {"compute_mode": demands.ComputeMode(mode), **more}
    return grants.ContainerGrant(name=name, shares=shares, **terms)


def granted(
    pod: str, *containers: grants.ContainerGrant, fence: str = "", tenant: str = ""
) -> list[reports.Container]:
    """The containers of a pod, each behind a fence of the same kind."""
    grant = grants.Grant(
        pod=grants.Pod(f"uid-{pod}", "lab", pod), node=NODE, containers=containers, dialect="native"
    )
    return [
        reports.Container(grant=grant, container=container, fence=fence, tenant=tenant)
        for container in containers
    ]


def card_usage(uuid: str = FIRST, **numbers: Any) -> usage.CardUsage:
    """What a tenant does with a card: nothing, but for what is said."""
    nothing = dict.fromkeys(
        ("used_bytes", "peak_bytes", "refused", "throttled", "throttled_ns", "launches", "busy_ns"),
        0,
    )
    terms = {
        "quota_bytes": 4096 * MIB,
        "mode": limits.Mode.FIXED,
        "share_millionths": 300_000,
        "ceiling_millionths": 0,
        "paused": False,
    }
    return usage.CardUsage(**{"uuid": uuid, **nothing, **terms, **numbers})


def used(tenant: str, *cards: usage.CardUsage) -> dict[str, usage.Usage | usage.Unreadable]:
    """The usage of one tenant, by its name."""
    return {tenant: usage.Usage(tenant, cards, ())}


def report(*containers: reports.Container, **more: Any) -> reports.Report:
    """A report of the node."""
    terms: dict[str, Any] = {"unhealthy": {}, "measured": {}, "used": {}, "taken_ns": 10**9, **more}
    return reports.report(NODE, CARDS, containers=containers, **terms)
