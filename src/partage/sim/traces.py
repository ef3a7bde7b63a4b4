"""Traces: clusters and workloads in the CSV format of the openb traces.

One file lists nodes (``sn,cpu_milli,memory_mib,gpu,model``), one lists pods (``name,cpu_milli,
memory_mib,num_gpu,gpu_milli`` and, if there, ``gpu_spec``); further columns are ignored. A card
counts a thousand units ("milli"), which the core is told are MiB: nothing is rounded.

Errors name the file, the line, the column and what to do.
"""

from __future__ import annotations

import csv
import pathlib
from collections.abc import Iterator

import msgspec

from partage.core import cards, demands, errors

CARD_MILLI = 1000
_MOST = 1 << 40  # of anything in one cell; a larger number is a typing error
_MOST_CARDS = 64

_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


class TracePod(msgspec.Struct, frozen=True):
    """One pod of a workload."""

    name: str
    demand: demands.PodDemand
    cards: int
    card_milli: int  # of each card

    @property
    def milli(self) -> int:
        """What it asks of all cards together."""
        return self.cards * self.card_milli


def read_nodes(path: pathlib.Path, *, skip_cpu_nodes: bool = False) -> list[cards.Node]:
    """The nodes of a cluster."""
    nodes = []
    names: set[str] = set()
    for row in _rows(path, _NODE_COLUMNS):
        name = row.name("sn", names)
        count = row.number("gpu", most=_MOST_CARDS)
        if not count and skip_cpu_nodes:
            continue
        if not count:
            raise row.error(
                "gpu",
                f"node {name} has no cards",
                "remove the row, or leave such nodes out with --skip-cpu-nodes",
            )
        nodes.append(_node(name, count, row))
    if not nodes:
        raise errors.TraceError(
            f"{path}: the file has no nodes", instead="give a file with at least one node"
        )
    return nodes


def read_pods(path: pathlib.Path) -> list[TracePod]:
    """The pods of a workload, in the order of their names."""
    names: set[str] = set()
    pods = [_pod(row, names) for row in _rows(path, _POD_COLUMNS)]
    if not any(pod.milli for pod in pods):
        raise errors.TraceError(
            f"{path}: no pod requests a card", instead="give a file in which num_gpu is not 0"
        )
    return sorted(pods, key=lambda pod: pod.name)


def _node(name: str, count: int, row: _Row) -> cards.Node:
    model = row.text("model")
    return cards.Node(
        name=name,
        free_cpu_milli=row.number("cpu_milli"),
        free_main_mib=row.number("memory_mib"),
        cards=tuple(
            cards.Card(uuid=f"{name}/{i}", index=i, memory_mib=CARD_MILLI, model=model)
            for i in range(count)
        ),
    )


def _pod(row: _Row, names: set[str]) -> TracePod:
    count = row.number("num_gpu", most=_MOST_CARDS)
    milli = row.number("gpu_milli", most=CARD_MILLI)
    if count and not milli:
        raise row.error("gpu_milli", "is 0 although num_gpu is not", "write 1 to 1000")
    if count > 1 and milli < CARD_MILLI:
        raise row.error("gpu_milli", "is below 1000 on several cards", "request whole cards")
    named = (model.strip() for model in row.text("gpu_spec").split("|"))
    models = tuple(demands.literally(model) for model in named if model)
    containers = (demands.ContainerDemand("", _demand(count, milli, models)),) if count else ()
    return TracePod(
        name=row.name("name", names),
        demand=demands.PodDemand(
            containers=containers,
            cpu_milli=row.number("cpu_milli"),
            main_mib=row.number("memory_mib"),
        ),
        cards=count,
        card_milli=milli if count else 0,
    )


def _demand(count: int, milli: int, models: tuple[str, ...]) -> demands.Demand:
    if milli == CARD_MILLI:
        return demands.Demand(cards=count, exclusive=demands.Exclusive.CARD, models=models)
    return demands.Demand(memory_mib=milli, models=models)


class _Row:
    """One line of a file, which knows where it stands."""

    def __init__(self, path: pathlib.Path, line: int, cells: dict[str, str]) -> None:
        self._path = path
        self._line = line
        self._cells = cells

    def text(self, column: str) -> str:
        return (self._cells.get(column) or "").strip()

    def name(self, column: str, taken: set[str]) -> str:
        name = self.text(column)
        if not name or name in taken:
            problem = "is empty" if not name else f"{name!r} is listed twice"
            raise self.error(column, problem, "give every row its own name")
        taken.add(name)
        return name

    def number(self, column: str, *, most: int = _MOST) -> int:
        text = self.text(column)
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) <= most):
            shown = text if len(text) <= 24 else text[:21] + "..."
            raise self.error(
                column, f"{shown!r} is not valid", f"write a whole number, 0 to {most}"
            )
        return int(text)

    def error(self, column: str, problem: str, instead: str) -> errors.TraceError:
        where = f"{self._path}, line {self._line}, column {column}"
        return errors.TraceError(f"{where}: {problem}", instead=instead)


def _rows(path: pathlib.Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _checked(path, csv.DictReader(file), columns)
    except OSError as error:
        raise errors.TraceError(
            f"{path}: {error.strerror or error}", instead="name a readable CSV file"
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise errors.TraceError(f"{path}: {error}", instead="give a CSV file in UTF-8") from error


def _checked(
    path: pathlib.Path, reader: csv.DictReader[str], columns: tuple[str, ...]
) -> Iterator[_Row]:
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    if missing:
        raise errors.TraceError(
            f"{path}, line 1: missing column {', '.join(missing)}",
            instead=f"the first line names the columns: {','.join(columns)}",
        )
    for cells in reader:
        row = _Row(path, reader.line_num, cells)
        if None in cells or any(cells[column] is None for column in columns):
            raise row.error(columns[0], "the row has a wrong number of cells", "correct the row")
        yield row
