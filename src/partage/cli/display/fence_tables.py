"""The tables of ``partage fence``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partage.cli.display import tables
from partage.core.quantities import MIB
from partage.fence import usage as fence_usage
from partage.fence.levels import catalog as fence_levels
from partage.fence.store import limits as fence_limits
from partage.fence.store import tenants

_LEVEL = ("LEVEL", "AVAILABLE", "HOLDS MEMORY", "HOLDS COMPUTE", "WHY NOT", "WHAT TO DO")
_LIMIT = ("TENANT", "CARD", "QUOTA(MiB)", "COMPUTE")
_CARD = (
    *("TENANT", "CARD", "USED(MiB)", "PEAK(MiB)", "QUOTA(MiB)", "REFUSED"),
    *("COMPUTE", "LAUNCHES", "WAITED", "WAITED(s)", "BUSY(s)"),
)
_PROCESS = ("TENANT", "PID", "CARD", "USED(MiB)")
_PROBLEM = ("TENANT", "PROBLEM")
_SCOPES = {
    fence_levels.Scope.TENANT: "of the tenant",
    fence_levels.Scope.PROCESS: "of each process",
    fence_levels.Scope.NOBODY: "no",
}


def levels(probes: Iterable[fence_levels.Probe]) -> str:
    """One line for each level."""
    return tables.aligned([_LEVEL, *(_level(probe) for probe in probes)])


def limits(tenant: tenants.Tenant) -> str:
    """What a tenant may use, card by card."""
    rows = (
        (tenant.name, card.uuid, _quota(card.memory_bytes), _compute(card))
        for card in tenant.limits.cards
    )
    return tables.aligned([_LIMIT, *rows])


def usage(read: Sequence[fence_usage.Usage], unreadable: Sequence[fence_usage.Unreadable]) -> str:
    """Cards, then processes, then problems; a table without rows is left out."""
    blocks = (
        (_CARD, [_card(tenant.tenant, card) for tenant in read for card in tenant.cards]),
        (_PROCESS, [row for tenant in read for row in _processes(tenant)]),
        (_PROBLEM, [(tenant.tenant, tenant.problem) for tenant in unreadable]),
    )
    return "\n\n".join(tables.aligned([header, *rows]) for header, rows in blocks if rows)


def _level(probe: fence_levels.Probe) -> tuple[str, ...]:
    holding = fence_levels.HOLDINGS[probe.level]
    return (
        *(str(probe.level), "yes" if probe.available else "no"),
        *(_SCOPES[holding.memory], _SCOPES[holding.compute]),
        *(probe.reason or "-", probe.remedy or "-"),
    )


def _card(tenant: str, card: fence_usage.CardUsage) -> tuple[str, ...]:
    quota = fence_limits.NO_QUOTA if card.quota_bytes is None else card.quota_bytes
    return (
        *(tenant, card.uuid, _mib(card.used_bytes), _mib(card.peak_bytes), _quota(quota)),
        *(str(card.refused), _compute(card), str(card.launches), str(card.throttled)),
        *(f"{card.throttled_ns / 1e9:.1f}", f"{card.busy_ns / 1e9:.1f}"),
    )


def _processes(tenant: fence_usage.Usage) -> Iterable[tuple[str, ...]]:
    for process in tenant.processes:
        for card, used_bytes in zip(tenant.cards, process.used_bytes, strict=True):
            yield tenant.tenant, str(process.pid), card.uuid, _mib(used_bytes)


def _compute(card: fence_usage.CardUsage | fence_limits.CardLimits) -> str:
    share = card.share_millionths / fence_limits.MILLIONTHS_PER_PERCENT
    ceiling = card.ceiling_millionths / fence_limits.MILLIONTHS_PER_PERCENT
    text = {
        fence_limits.Mode.NONE: "all",
        fence_limits.Mode.FIXED: f"{share:g}%",
        fence_limits.Mode.BURST: f"{share:g}%-{ceiling:g}%",
        fence_limits.Mode.BEST_EFFORT: "best effort",
    }[card.mode]
    text = f"{text}, yields" if card.yields else text
    return f"{text}, paused" if card.paused else text


def _quota(memory_bytes: int) -> str:
    return "all" if memory_bytes == fence_limits.NO_QUOTA else _mib(memory_bytes)


def _mib(amount_bytes: int) -> str:
    return str(-(-amount_bytes // MIB))  # rounded up: one byte is not shown as nothing
