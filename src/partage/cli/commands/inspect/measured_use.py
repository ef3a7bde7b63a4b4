"""Measured use: adds what a node's agent measures at this moment to an inspection.

The cluster says what was granted, everywhere; an agent says what is used, on its node. Pods are
identified by uid, cards by uuid. What the agent does not know stays unknown.
"""

from __future__ import annotations

import collections

import msgspec

from partage.agent import reports
from partage.cli.commands.inspect import inspection
from partage.core.quantities import MIB
from partage.fence.watch import escapes


def joined(inspected: inspection.Inspection, live: reports.Report) -> inspection.Inspection:
    """The same inspection; the cards and tenants of the agent's node have their numbers."""
    nodes = tuple(_node(node, live) if node.name == live.node else node for node in inspected.nodes)
    return msgspec.structs.replace(inspected, nodes=nodes)


def _node(node: inspection.Node, live: reports.Report) -> inspection.Node:
    measured = {card.uuid: card.used_mib for card in live.cards}
    rows: dict[tuple[str, str], list[reports.ContainerReport]] = collections.defaultdict(list)
    for row in live.containers:
        rows[row.uid, row.uuid].append(row)
    return msgspec.structs.replace(
        node,
        cards=tuple(
            msgspec.structs.replace(
                card,
                measured_mib=measured.get(card.uuid or ""),
                tenants=tuple(
                    _tenant(tenant, rows[tenant.uid, card.uuid or ""]) for tenant in card.tenants
                ),
            )
            for card in node.cards
        ),
    )


def _tenant(tenant: inspection.Tenant, rows: list[reports.ContainerReport]) -> inspection.Tenant:
    """Of all its containers; unknown if one of them is."""
    measured = [row.used_bytes for row in rows if row.used_bytes is not None]
    complete = bool(rows) and len(measured) == len(rows)
    outside = any(row.fence == escapes.Kind.OUTSIDE for row in rows)
    return msgspec.structs.replace(
        tenant,
        measured_mib=-(-sum(measured) // MIB) if complete else None,
        fence=escapes.Kind.OUTSIDE.value if outside else tenant.fence,
    )
