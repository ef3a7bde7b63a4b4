"""``partage inspect``: which pods have which cards of a cluster, in all dialects.

It reads nodes, pods and namespaces once, as the extender does, and prints them. It needs no
extender and changes nothing. No API server knows what is in use at this moment; ``--live`` asks the
agent of one node for it, and only then, so that the rest never waits for an agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import click
import msgspec
import yaml

from partage.cli import notices
from partage.cli.cluster import claims_snapshot, cluster_snapshot, mirror_snapshot
from partage.cli.commands.inspect import accelerator_rows, inspection
from partage.cli.display import tables
from partage.cli.sources import agent_address
from partage.dialects import pods

UNKNOWN = "N/A"

_EPILOG = """\b
Examples:
  partage inspect                   cards, tenants and problems of the cluster
  partage inspect dev-server-153 -o wide
  partage inspect --live            on a node: what its pods use now, too
  partage inspect -o json | jq '.nodes[].cards[] | select(.healthy | not)'
"""


@click.command(epilog=_EPILOG)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
)
@click.option(
    "--kubeconfig", metavar="FILE", help="The kubeconfig; $KUBECONFIG, or ~/.kube/config."
)
@click.option("--context", metavar="NAME", help="A context of the kubeconfig.")
@click.option("--live", is_flag=True, help="Add what is in use now, as a node's agent measures it.")
@click.option(
    "--agent",
    metavar="URL",
    default=agent_address.DEFAULT,
    show_default=True,
    help="The address of the agent that --live asks.",
)
@click.argument("node", default="")
def inspect(
    *, output: str, kubeconfig: str | None, context: str | None, live: bool, agent: str, node: str
) -> None:
    """Show every card, its tenants, and problems.

    A tenant with COUNTED worst-case has a damaged record: it counts on every card it may have.
    """
    inspected = cluster_snapshot.read(_read, kubeconfig=kubeconfig, context=context, node=node)
    if live:
        inspected = _joined(inspected, agent)
    text = _PRINTED[output](inspected, live)
    if text:
        click.echo(text)
    empty = not inspected.other_accelerators and not any(node.cards for node in inspected.nodes)
    if output in _TABLES and empty:
        notices.show(f"No cards found{f' on node {node}' if node else ''}.")


async def _read(cluster: cluster_snapshot.Cluster) -> inspection.Inspection:
    others = accelerator_rows.Collector()
    cluster_mirror = await mirror_snapshot.read(
        cluster, pods.Pod, see=others.see_pod, see_node=others.see_node
    )
    await claims_snapshot.read(cluster, cluster_mirror)
    return inspection.inspect(cluster_mirror, named=cluster.node, others=others.rows())


def _joined(inspected: inspection.Inspection, agent: str) -> inspection.Inspection:
    from partage.cli.commands.inspect import measured_use
    from partage.cli.sources import agent_report

    report = agent_report.fetch(agent)
    if not any(node.name == report.node for node in inspected.nodes):
        notices.show(f"The agent belongs to node {report.node}, which is not shown.")
    return measured_use.joined(inspected, report)


def _json(inspected: inspection.Inspection, _live: bool) -> str:
    return msgspec.json.format(msgspec.json.encode(inspected), indent=2).decode()


def _yaml(inspected: inspection.Inspection, _live: bool) -> str:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    plain = msgspec.to_builtins(inspected)
    text: str = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")


def _table(inspected: inspection.Inspection, live: bool) -> str:
    return "\n\n".join(_blocks(inspected, wide=False, live=live))


def _wide(inspected: inspection.Inspection, live: bool) -> str:
    return "\n\n".join(_blocks(inspected, wide=True, live=live))


_TABLES = ("table", "wide")
_PRINTED: dict[str, Callable[[inspection.Inspection, bool], str]] = {
    "table": _table,
    "wide": _wide,
    "json": _json,
    "yaml": _yaml,
}


def _blocks(inspected: inspection.Inspection, *, wide: bool, live: bool) -> Iterator[str]:
    """Cards, tenants, what other vendors have, namespaces, problems: each where there are any."""
    cards = [(node, card) for node in inspected.nodes for card in node.cards]
    tenants = [(node, card, tenant) for node, card in cards for tenant in card.tenants]
    if cards:
        rows = (_card(node, card, wide=wide) + _live(card) * live for node, card in cards)
        yield _aligned(_CARD + _CARD_WIDE * wide + _LIVE * live, rows)
    if tenants:
        rows = (
            _tenant(node, card, tenant, wide=wide) + _live(tenant) * live
            for node, card, tenant in tenants
        )
        yield _aligned(_TENANT + _TENANT_WIDE * wide + _LIVE * live, rows)
    if inspected.other_accelerators:
        yield _aligned(_OTHERS, map(_other, inspected.other_accelerators))
    if inspected.namespaces:
        yield _aligned(_NAMESPACE, map(_namespace, inspected.namespaces))
    if inspected.problems:
        yield _aligned(_PROBLEM, ((problem.object, problem.text) for problem in inspected.problems))


_CARD = (
    *("NODE", "CARD", "MODEL", "HEALTH"),
    *("USED(MiB)", "FREE(MiB)", "TOTAL(MiB)", "COMPUTE", "TENANTS"),
)
_CARD_WIDE = ("FOREIGN(MiB)", "OFFLINE", "ADDRESS", "UUID")
_TENANT = (
    *("NODE", "CARD", "NAMESPACE", "POD", "DIALECT"),
    *("MEMORY(MiB)", "COMPUTE", "EXCLUSIVE", "FENCE", "COUNTED"),
)
_TENANT_WIDE = ("QOS", "CONTAINERS", "UID")
_LIVE = ("MEASURED(MiB)",)
_OTHERS = ("NODE", "RESOURCE", "ACCELERATOR", "USED", "TOTAL", "PODS")
_NAMESPACE = ("NAMESPACE", "CARDS", "MEMORY(MiB)", "COMPUTE")
_PROBLEM = ("OBJECT", "PROBLEM")


def _card(node: inspection.Node, card: inspection.Card, *, wide: bool) -> tuple[str, ...]:
    usual = (
        *(node.name, str(card.index), card.model or UNKNOWN),
        _health(card),
        *map(_number, (card.used_mib, card.free_mib, card.memory_mib)),
        *(f"{card.compute_percent}%", str(len(card.tenants))),
    )
    more = (
        *(str(card.foreign_mib), f"{card.offline_percent}%"),
        *(node.address or UNKNOWN, card.uuid or UNKNOWN),
    )
    return usual + more * wide


def _health(card: inspection.Card) -> str:
    """Whether a card can be used; that it is not healthy is said first."""
    if not card.healthy:
        return "unhealthy"
    return "cordoned" if card.cordoned else "healthy"


def _tenant(
    node: inspection.Node, card: inspection.Card, tenant: inspection.Tenant, *, wide: bool
) -> tuple[str, ...]:
    usual = (
        *(node.name, str(card.index), tenant.namespace, _pod(tenant), tenant.dialect or UNKNOWN),
        *(str(tenant.memory_mib), f"{tenant.compute_percent}%", tenant.exclusive),
        *(tenant.fence or UNKNOWN, "worst-case" if tenant.worst_case else "exactly"),
    )
    more = (tenant.qos, ",".join(tenant.containers) or UNKNOWN, tenant.uid)
    return usual + more * wide


def _pod(tenant: inspection.Tenant) -> str:
    users = ", ".join(name.partition("/")[2] for name in tenant.used_by)
    return f"{tenant.pod} ({users})" if users else tenant.pod


def _other(row: accelerator_rows.Accelerators) -> tuple[str, ...]:
    holders = (f"{holder.namespace}/{holder.pod} ({holder.amount})" for holder in row.pods)
    names = ", ".join(holders) or "none"
    return row.node, row.resource, row.accelerator, str(row.used), str(row.capacity), names


def _namespace(row: inspection.Namespace) -> tuple[str, ...]:
    return (
        row.name,
        _of(row.cards, row.most_cards),
        _of(row.memory_mib, row.most_memory_mib),
        _of(row.compute_percent, row.most_compute_percent, "%"),
    )


def _of(has: int, most: int | None, unit: str = "") -> str:
    """What a namespace has of what it may have; what there is, where it has no total."""
    return f"{has}{unit}" if most is None else f"{has}/{most}{unit}"


def _live(row: inspection.Card | inspection.Tenant) -> tuple[str, ...]:
    return (_number(row.measured_mib),)


def _number(amount: int | None) -> str:
    return UNKNOWN if amount is None else str(amount)


def _aligned(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return tables.aligned([header, *(tuple(map(tables.printable, row)) for row in rows)])
