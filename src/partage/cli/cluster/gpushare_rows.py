"""How ``kubectl inspect gpushare`` reads a cluster: nodes and pods by the rules of gpushare itself.

Its tables are about the words of gpushare: how much of ``aliyun.com/gpu-mem`` a node offers, what
the containers of a pod have as a limit, and which card an annotation names. So they are computed
from those words and not from the fleet, and say the same of pods that gpushare placed, of those
that Partage placed, and of those that both misunderstood.

gpushare takes all cards of a node to be alike. Where Partage's agent wrote down the node's cards
they have their own sizes here, and the unit is known instead of guessed; a node without that
annotation is shown exactly as the original shows it.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from partage.cli.display import gpushare_table
from partage.core import cards, errors, quantities
from partage.dialects import nodes, pods, rules
from partage.dialects.families import aliyun

_ENDED = ("Succeeded", "Failed")
_UNITS = {1: "MiB", 1024: "GiB"}
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_ALLOCATION = msgspec.json.Decoder(dict[int, dict[str, int]])
_UNREADABLE = (ValueError, RecursionError)  # msgspec's errors are ValueErrors


class Tenants:
    """The pods that have gpushare's memory, by node; other pods are not kept."""

    def __init__(self) -> None:
        self._rows: dict[str, list[gpushare_table.PodRow]] = {}

    def put(self, pod: pods.Pod) -> None:
        """Count a pod, even one that is being deleted, as the original does."""
        if not pod.spec.node_name or pod.status.phase in _ENDED:
            return
        units = sum(_units(c.resources.limits) for c in pod.spec.containers)
        if units > 0:
            row = gpushare_table.PodRow(
                name=pod.metadata.name,
                namespace=pod.metadata.namespace,
                units=_placed(pod.metadata.annotations, units),
            )
            self._rows.setdefault(pod.spec.node_name, []).append(row)

    def on(self, node: str) -> tuple[gpushare_table.PodRow, ...]:
        """The pods of a node, in the order in which they came."""
        return tuple(self._rows.get(node, ()))


def shares(node: nodes.Node) -> bool:
    """Whether a node is listed at all: it offers memory in gpushare's words."""
    return _units(node.status.allocatable) > 0


def row(node: nodes.Node, tenants: Tenants) -> gpushare_table.NodeRow:
    """One node with its pods."""
    memory = _units(node.status.allocatable)
    pod_rows = tenants.on(node.metadata.name) if memory else ()
    sizes, unit = _sizes(node, memory)
    given = _given(pod_rows)
    return gpushare_table.NodeRow(
        name=node.metadata.name,
        address=node.address,
        used=tuple(given.pop(index, 0) for index in range(len(sizes))),
        total=sizes,
        pending=given.pop(gpushare_table.PENDING, 0),
        strays=dict(given),
        memory=memory,
        unit=unit,
        pods=pod_rows,
    )


def _units(amounts: Mapping[str, pods.Amount], resource: str = aliyun.MEMORY) -> int:
    """A resource in whole units, rounded up; nothing if it is not there."""
    try:
        return max(0, math.ceil(quantities.parse(str(amounts.get(resource, 0)))))
    except errors.QuantityError:
        return 0


def _placed(annotations: Mapping[str, str], units: int) -> dict[int, int]:
    """The pod's units by card: its allocation if there is a readable one, else its index."""
    listed = _allocated(annotations.get(aliyun.ALLOCATION, ""))
    if listed:
        return listed
    index = annotations.get(aliyun.INDEX, "")
    return {int(index) if _NUMBER.fullmatch(index) else gpushare_table.PENDING: units}


def _allocated(text: str) -> dict[int, int]:
    """The sums over all containers, by card; nothing if any of it is unreadable."""
    try:
        containers = _ALLOCATION.decode(text).values()
    except _UNREADABLE:
        return {}
    sums: collections.Counter[int] = collections.Counter()
    for index, units in (entry for container in containers for entry in container.items()):
        if not _NUMBER.fullmatch(index):
            return {}
        sums[int(index)] += units
    return dict(sums)


def _given(pod_rows: Iterable[gpushare_table.PodRow]) -> collections.Counter[int]:
    given: collections.Counter[int] = collections.Counter()
    for pod in pod_rows:
        for index, units in pod.units.items():
            given[index] += units
    return given


def _sizes(node: nodes.Node, memory: int) -> tuple[tuple[int, ...], str]:
    """The size of each card in units, and which unit that is; empty if it is not known."""
    count = min(_units(node.status.allocatable, aliyun.COUNT), rules.MOST_CARDS)
    memory_mib = {card.index: card.memory_mib for card in _published(node)}
    if not memory_mib:
        return (memory // count if count else 0,) * count, ""
    unit_mib = nodes.unit_mib(memory // max(count, len(memory_mib)))
    columns = max(count, max(memory_mib) + 1)
    return tuple(memory_mib.get(i, 0) // unit_mib for i in range(columns)), _UNITS[unit_mib]


def _published(node: nodes.Node) -> Iterator[cards.Card]:
    """The cards that Partage's agent wrote down, if they can be read."""
    try:
        published = nodes.published(node)
    except nodes.Unreadable:
        return
    yield from (card for card in published or () if card.index < rules.MOST_CARDS)
