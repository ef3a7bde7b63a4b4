"""An inspection with what a node's agent measures at this moment.

The cluster says what was granted, everywhere; an agent says what is used, on its node. Pods are
told apart by uid, cards by uuid. What the agent does not know stays unknown.
"""

from __future__ import annotations

import collections

import msgspec

from partage.agent import reporting
from partage.cli.inspect import inspection
from partage.core.quantities import MIB
from partage.fence.watch import facts


def joined(found: inspection.Inspection, live: reporting.Report) -> inspection.Inspection:
    """The same inspection; the cards and tenants of the agent's node have their numbers."""
    nodes = tuple(_node(node, live) if node.name == live.node else node for node in found.nodes)
    return msgspec.structs.replace(found, nodes=nodes)


def _node(node: inspection.Node, live: reporting.Report) -> inspection.Node:
    measured = {card.uuid: card.used_mib for card in live.cards}
    rows: dict[tuple[str, str], list[reporting.ContainerReport]] = collections.defaultdict(list)
    for row in live.containers:
        rows[row.uid, row.uuid].append(row)
    return msgspec.structs.replace(
        node,
        cards=tuple(
            msgspec.structs.replace(
                card,
                measured_mib=measured.get(card.uuid or ""),
                tenants=tuple(
                    _tenant(each, rows[each.uid, card.uuid or ""]) for each in card.tenants
                ),
            )
            for card in node.cards
        ),
    )


def _tenant(tenant: inspection.Tenant, rows: list[reporting.ContainerReport]) -> inspection.Tenant:
    """Of all its containers; unknown if one of them is."""
    known = [row.used_bytes for row in rows if row.used_bytes is not None]
    complete = bool(rows) and len(known) == len(rows)
    outside = any(row.fence == facts.Kind.OUTSIDE for row in rows)
    return msgspec.structs.replace(
        tenant,
        measured_mib=-(-sum(known) // MIB) if complete else None,
        fence=facts.Kind.OUTSIDE.value if outside else tenant.fence,
    )
