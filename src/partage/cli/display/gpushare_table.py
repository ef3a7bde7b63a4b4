"""The two tables of ``kubectl inspect gpushare``, byte for byte.

People parse this text in programs, so its columns are an interface, and its oddities are part of
it: percentages are cut off and computed in floating point, the line of dashes is as long as some
row was before it was aligned, a pod on a card that its node does not have counts in one table and
hardly in the other. The one liberty taken is the order of nodes and of the pods on them, which the
original leaves to chance: here nodes are sorted by name, and pods by their card.

:mod:`partage.cli.cluster.gpushare_rows` makes rows of nodes and pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from partage.cli.display import tables

PENDING = -1  # the index that the original gives to a pod without a card

_LARGEST_GIB = 100  # per card; above, the original takes the numbers for MiB
_IN_CLUSTER = "Allocated/Total GPU Memory In Cluster:"


class PodRow(msgspec.Struct, frozen=True, kw_only=True):
    """One pod on a node, in units of ``aliyun.com/gpu-mem``."""

    name: str
    namespace: str
    units: Mapping[int, int]  # by index of the card, or PENDING


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node, in units of ``aliyun.com/gpu-mem``."""

    name: str
    address: str = ""
    used: tuple[int, ...]  # per card, in index order
    total: tuple[int, ...]
    pending: int = 0  # of pods that are bound here without a card
    strays: Mapping[int, int] = {}  # of pods on cards that are not there, by index
    memory: int | None = None  # of the whole node, where it is not the sum of its cards
    unit: str = ""  # where it is known, and need not be guessed
    pods: tuple[PodRow, ...] = ()

    @property
    def all_used(self) -> int:
        """What the whole node has given."""
        return sum(self.used) + sum(self.strays.values()) + self.pending

    @property
    def all_total(self) -> int:
        """What the whole node has."""
        return sum(self.total) if self.memory is None else self.memory

    @property
    def each(self) -> int:
        """What one card has if they are all alike."""
        return self.all_total // len(self.total) if self.total else 0

    def used_within(self, columns: int) -> int:
        """What the node has given on cards that have a column."""
        return self.all_used - sum(n for i, n in self.strays.items() if not 0 <= i < columns)


def summary(nodes: Sequence[NodeRow]) -> str:
    """A line for each node; without a newline at its end."""
    columns = max((len(node.total) for node in nodes), default=0)
    pending = any(node.pending for node in nodes)
    shown = _shown(nodes)
    rows = [_row(node, columns, pending=pending) for node in shown]
    used = sum(node.used_within(columns) for node in shown)
    return tables.tabbed(
        "\n".join(
            [
                _header(columns, _unit(shown), pending=pending),
                *rows,
                "-" * (len(rows[0]) + len("\n") + 20) if rows else "",
                _IN_CLUSTER,
                f"{_part(used, _memory(shown))}\t",
            ]
        )
    )


def details(nodes: Sequence[NodeRow]) -> str:
    """A block for each node, with a line for each pod; without a newline at its end."""
    shown = _shown(nodes)
    blocks = [_pod_rows(node) for node in shown]
    # Of the first node, for all of them.
    dashes = "-" * (sum(len(row) + len("\n") for row in blocks[0]) + 10) if blocks else ""
    lines: list[str] = []
    for node, rows in zip(shown, blocks, strict=True):
        lines += ["", f"NAME:\t{node.name}", f"IPADDRESS:\t{_address(node)}", ""]
        lines += [_pod_header(node), *rows]
        lines += [f"Allocated :\t{node.all_used} ({_percent(node.all_used, node.all_total)}%)\t"]
        lines += [f"Total :\t{node.all_total} \t", dashes]
    used = sum(node.all_used for node in shown)
    lines += ["", "", f"{_IN_CLUSTER}\t{_part(used, _memory(shown))}\t"]
    return tables.tabbed("\n".join(lines))


def _shown(nodes: Sequence[NodeRow]) -> list[NodeRow]:
    """A node that was asked for by name may share nothing; it only adds columns, then."""
    return sorted((node for node in nodes if node.all_total > 0), key=lambda node: node.name)


def _header(columns: int, unit: str, *, pending: bool) -> str:
    cards = [f"GPU{i}(Allocated/Total)" for i in range(columns)]
    waiting = ["PENDING(Allocated)"] if pending else []
    return "\t".join(["NAME", "IPADDRESS", *cards, *waiting, f"GPU Memory({unit})"])


def _row(node: NodeRow, columns: int, *, pending: bool) -> str:
    waiting = [str(node.pending) if node.pending else ""] if pending else []
    sums = f"{node.used_within(columns)}/{node.all_total}"
    return "\t".join([node.name, _address(node), *_cells(node, columns), *waiting, sums])


def _cells(node: NodeRow, columns: int) -> Iterator[str]:
    for i in range(columns):
        if i < len(node.total):
            yield f"{node.used[i]}/{node.total[i]}"
        elif i in node.strays:
            yield f"{node.strays[i]}/{node.each}"
        else:
            yield "0/0"


def _unit(nodes: Sequence[NodeRow]) -> str:
    """Of the first node that has cards; the original guesses it."""
    first = next((node for node in nodes if node.total), None)
    if first is None:
        return ""
    return first.unit or ("MiB" if first.each > _LARGEST_GIB else "GiB")


def _pod_header(node: NodeRow) -> str:
    cards = [f"GPU{i}(Allocated)" for i in range(len(node.total))]
    waiting = ["Pending(Allocated)"] if node.pending else []
    return "".join(f"{cell}\t" for cell in ["NAME", "NAMESPACE", *cards, *waiting])


def _pod_rows(node: NodeRow) -> list[str]:
    return [
        f"{pod.name}\t{pod.namespace}\t" + "".join(f"{units}\t" for units in _units(pod, node))
        for pod in sorted(node.pods, key=_place)
    ]


def _units(pod: PodRow, node: NodeRow) -> Iterator[int]:
    """The pod's cells; the original's column for pending pods is also that of a card too many."""
    for i in range(len(node.total)):
        yield pod.units.get(i, 0)
    if node.pending:
        yield pod.units.get(len(node.total), pod.units.get(PENDING, 0))


def _place(pod: PodRow) -> tuple[bool, int]:
    """Its first card; those without one come last."""
    first = min((i for i in pod.units if i != PENDING), default=PENDING)
    return first == PENDING, first


def _address(node: NodeRow) -> str:
    return node.address or "unknown"


def _memory(nodes: Sequence[NodeRow]) -> int:
    return sum(node.all_total for node in nodes)


def _part(used: int, total: int) -> str:
    return f"{used}/{total} ({_percent(used, total)}%)"


def _percent(used: int, total: int) -> int:
    """As the original computes it: 29 of 100 are 28 %, since 0.29 is a little less than that."""
    return int(float(used) / float(total) * 100) if total else 0
