"""``partage inspect``: who has which card of a cluster, whatever words they asked in.

The same reading of nodes and pods that the extender decides from, made once and printed. It needs
no extender and changes nothing. What is in use at this moment no API server knows; ``--live`` asks
the agent of one node for it, and only then, so that the rest never waits for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import click
import msgspec
import yaml

from partage.cli import cluster_reading, mirroring, tables
from partage.cli.inspect import inspection
from partage.cli.top import sampling
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
@click.option("--kubeconfig", metavar="FILE", help="$KUBECONFIG, or ~/.kube/config.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
@click.option("--live", is_flag=True, help="Ask a node's agent what is in use now.")
@click.option(
    "--agent",
    metavar="URL",
    default=sampling.DEFAULT_AGENT,
    show_default=True,
    help="The agent that --live asks.",
)
@click.argument("node", default="")
def inspect(
    *, output: str, kubeconfig: str | None, context: str | None, live: bool, agent: str, node: str
) -> None:
    """Show every card, who has a share of it, and what is wrong.

    A tenant counted in the worst case has a damaged record: it counts on every card it may have.
    """
    found = cluster_reading.read(_inspected, kubeconfig=kubeconfig, context=context, node=node)
    if live:
        found = _joined(found, agent)
    text = _PRINTED[output](found, live)
    if text:
        click.echo(text)
    if output in _TABLES and not any(each.cards for each in found.nodes):
        click.echo(f"No cards found{f' on node {node}' if node else ''}.", err=True)


async def _inspected(cluster: cluster_reading.Cluster) -> inspection.Inspection:
    return inspection.inspect(await mirroring.read(cluster, pods.Pod), named=cluster.node)


def _joined(found: inspection.Inspection, agent: str) -> inspection.Inspection:
    from partage.cli.inspect import joining
    from partage.cli.top import fetching

    told = fetching.fetch(agent)
    if not any(each.name == told.node for each in found.nodes):
        click.echo(f"The agent is that of node {told.node}, which is not shown.", err=True)
    return joining.joined(found, told)


def _json(found: inspection.Inspection, _live: bool) -> str:
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def _yaml(found: inspection.Inspection, _live: bool) -> str:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    plain = msgspec.to_builtins(found)
    text: str = yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")


def _table(found: inspection.Inspection, live: bool) -> str:
    return "\n\n".join(_blocks(found, wide=False, live=live))


def _wide(found: inspection.Inspection, live: bool) -> str:
    return "\n\n".join(_blocks(found, wide=True, live=live))


_TABLES = ("table", "wide")
_PRINTED: dict[str, Callable[[inspection.Inspection, bool], str]] = {
    "table": _table,
    "wide": _wide,
    "json": _json,
    "yaml": _yaml,
}


def _blocks(found: inspection.Inspection, *, wide: bool, live: bool) -> Iterator[str]:
    """Cards, then tenants, then problems, each where there are any."""
    cards = [(node, card) for node in found.nodes for card in node.cards]
    tenants = [(node, card, tenant) for node, card in cards for tenant in card.tenants]
    if cards:
        rows = (_card(*each, wide=wide) + _live(each[1]) * live for each in cards)
        yield _aligned(_CARD + _CARD_WIDE * wide + _LIVE * live, rows)
    if tenants:
        rows = (_tenant(*each, wide=wide) + _live(each[2]) * live for each in tenants)
        yield _aligned(_TENANT + _TENANT_WIDE * wide + _LIVE * live, rows)
    if found.problems:
        yield _aligned(_PROBLEM, ((each.object, each.text) for each in found.problems))


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
_PROBLEM = ("OBJECT", "PROBLEM")


def _card(node: inspection.Node, card: inspection.Card, *, wide: bool) -> tuple[str, ...]:
    usual = (
        *(node.name, str(card.index), card.model or UNKNOWN),
        "healthy" if card.healthy else "sick",
        *map(str, (card.used_mib, card.free_mib, card.memory_mib)),
        *(f"{card.compute_percent}%", str(len(card.tenants))),
    )
    more = (
        *(str(card.foreign_mib), f"{card.offline_percent}%"),
        *(node.address or UNKNOWN, card.uuid or UNKNOWN),
    )
    return usual + more * wide


def _tenant(
    node: inspection.Node, card: inspection.Card, tenant: inspection.Tenant, *, wide: bool
) -> tuple[str, ...]:
    usual = (
        *(node.name, str(card.index), tenant.namespace, tenant.pod, tenant.dialect or UNKNOWN),
        *(str(tenant.memory_mib), f"{tenant.compute_percent}%", tenant.exclusive),
        *(tenant.fence or UNKNOWN, "worst-case" if tenant.worst_case else "exactly"),
    )
    more = (tenant.qos, ",".join(tenant.containers) or UNKNOWN, tenant.uid)
    return usual + more * wide


def _live(each: inspection.Card | inspection.Tenant) -> tuple[str, ...]:
    return (UNKNOWN if each.measured_mib is None else str(each.measured_mib),)


def _aligned(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return tables.aligned([header, *(tuple(map(tables.printable, row)) for row in rows)])
