"""The summary table of ``kubectl inspect gpushare``, byte for byte.

People parse this text in programs, so its columns are an interface. The one liberty taken is the
order of nodes, which the original leaves to chance: here they are sorted by name.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from partage.cli import tables

_LARGEST_GIB = 100  # per card; above, the original takes the numbers for MiB


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node, in units of ``aliyun.com/gpu-mem``."""

    name: str
    address: str = ""
    used: tuple[int, ...]  # per card, in index order
    total: tuple[int, ...]
    pending: int = 0  # of pods that are bound here without a card

    @property
    def all_used(self) -> int:
        """What the whole node has given."""
        return sum(self.used) + self.pending


def summary(nodes: Sequence[NodeRow]) -> str:
    """The table, without a newline at its end."""
    nodes = sorted(nodes, key=lambda node: node.name)
    columns = max((len(node.total) for node in nodes), default=0)
    pending = any(node.pending for node in nodes)
    rows = [_row(node, columns, pending=pending) for node in nodes]
    used, total = sum(n.all_used for n in nodes), sum(sum(n.total) for n in nodes)
    percent = 100 * used // total if total else 0
    dashes = "-" * (len(rows[0]) + 1 + 20) if rows else "-" * 20
    return tables.tabbed(
        "\n".join(
            [
                _header(columns, _unit(nodes), pending=pending),
                *rows,
                dashes,
                "Allocated/Total GPU Memory In Cluster:",
                f"{used}/{total} ({percent}%)\t",
            ]
        )
    )


def _header(columns: int, unit: str, *, pending: bool) -> str:
    cards = [f"GPU{i}(Allocated/Total)" for i in range(columns)]
    waiting = ["PENDING(Allocated)"] if pending else []
    return "\t".join(["NAME", "IPADDRESS", *cards, *waiting, f"GPU Memory({unit})"])


def _row(node: NodeRow, columns: int, *, pending: bool) -> str:
    missing = columns - len(node.total)
    cells = [f"{used}/{total}" for used, total in zip(node.used, node.total, strict=True)]
    waiting = [str(node.pending) if node.pending else ""] if pending else []
    sums = f"{node.all_used}/{sum(node.total)}"
    address = node.address or "unknown"
    return "\t".join([node.name, address, *cells, *["0/0"] * missing, *waiting, sums])


def _unit(nodes: Sequence[NodeRow]) -> str:
    """As the original guesses it, from the first node that has cards."""
    first = next((node for node in nodes if node.total), None)
    if first is None:
        return ""
    return "MiB" if sum(first.total) // len(first.total) > _LARGEST_GIB else "GiB"
