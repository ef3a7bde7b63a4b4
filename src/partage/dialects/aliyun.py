"""Aliyun: gpushare, and cGPU, which grew out of it.

A container names an amount of memory, and all containers of a pod stand on the same card. cGPU adds
a share of the card's time on nodes that isolate it, and several cards by a label of the pod, among
which each amount is divided.

Nothing in the names says whether they count GiB or MiB: the node's plugin decides that for a whole
cluster, so it is a setting. Pods that name only the resource ``aliyun.com/gpu-count`` ask nothing
of gpushare; for it that resource is a number which the default scheduler subtracts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from partage.core import cards, demands, grants
from partage.dialects import base, nodes, pods, reading, records

MEMORY = "aliyun.com/gpu-mem"
CORE = "aliyun.com/gpu-core.percentage"
COUNT = "aliyun.com/gpu-count"  # a label of pods, and a resource that means nothing

MODE = "ack.node.gpu.schedule"
PLACEMENT = "ack.node.gpu.placement"
NO_ISOLATION = "cgpu.disable.isolation"

INDEX = "ALIYUN_COM_GPU_MEM_IDX"
CARD_UNITS = "ALIYUN_COM_GPU_MEM_DEV"
POD_UNITS = "ALIYUN_COM_GPU_MEM_POD"
CONTAINER_UNITS = "ALIYUN_COM_GPU_MEM_CONTAINER"
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
ALLOCATION = "scheduler.framework.gpushare.allocation"
DISABLED = "CGPU_DISABLE"

MEMORY_TAG = "aliyun/memory"
CORE_TAG = "aliyun/core"
EXCLUSIVE_MODES = ("default", "topology")
SHARING_MODES = ("cgpu", "core_mem", "share", "mps")
_CORE_STEP = 5


def trait(mode: str) -> str:
    """The trait of a node whose label sets this mode."""
    return f"aliyun/{mode}"


class Aliyun(base.Dialect):
    """gpushare and cGPU."""

    name = "aliyun"
    resources: ClassVar = {
        MEMORY: reading.units("GiB (or MiB, if the cluster counts those)"),
        CORE: reading.PERCENT,
    }
    traits: ClassVar = {
        **{(MODE, mode): trait(mode) for mode in EXCLUSIVE_MODES + SHARING_MODES},
        (NO_ISOLATION, "true"): trait("no-isolation"),
    }
    placements: ClassVar = {(PLACEMENT, policy): policy for policy in ("binpack", "spread")}
    advisory = frozenset({trait("share"), trait("no-isolation")})

    def demand(self, request: base.Request) -> demands.PodDemand:
        count = reading.label_number(request.pod, COUNT, reading.CARDS) or 1
        containers = base.containers(request, lambda a: _demand(a, count, request.settings))
        core = any(container.demand.compute_percent for container in containers)
        return demands.PodDemand(
            containers=containers,
            together=True,
            dialect=self.name,
            refused_by=tuple(map(trait, _refusing(core=core, count=count))),
            tag=CORE_TAG if core else MEMORY_TAG,
            apart_from=((trait("core_mem"), MEMORY_TAG if core else CORE_TAG),),
        )

    def warnings(self, request: base.Request) -> tuple[str, ...]:
        if not reading.first_field(request.pod, {COUNT: reading.CARDS}):
            return ()
        return (f"the resource {COUNT} has no effect; for several cards set the label {COUNT}",)

    def marks(self, bound: base.Bound) -> base.Marks:
        unit, grant = bound.settings.memory_unit_mib, bound.grant
        uuids = {share.uuid for c in grant.containers for share in c.shares}
        found = [base.card(bound.node, uuid) for uuid in uuids]
        annotations = {
            CARD_UNITS: str(_card_units(found, unit)),
            POD_UNITS: str(_pod_units(grant, unit)),
            ASSIGNED: "false",
            ASSUME_TIME: str(bound.now_ns),
        }
        if len(found) == 1:
            annotations[INDEX] = str(found[0].index)
        else:
            # No index: a reader that knows one card only must not take it for the whole pod.
            annotations[ALLOCATION] = _allocation(bound)
        return base.Marks(annotations)

    def assigned(self) -> dict[str, str]:
        # The original writes the present into ASSUME_TIME, and so nobody knows any more when the
        # pod was placed. Its own tools read that annotation only while ASSIGNED is "false".
        return {ASSIGNED: "true"}

    def environment(self, start: base.Start) -> dict[str, str]:
        unit = start.settings.memory_unit_mib
        found = [base.card(start.node, share.uuid) for share in start.container.shares]
        environment = super().environment(start) | {
            INDEX: ",".join(str(card.index) for card in found),
            CARD_UNITS: str(_card_units(found, unit)),
            POD_UNITS: str(_pod_units(start.grant, unit)),
            CONTAINER_UNITS: str(_units(start.container, unit)),
        }
        if trait("no-isolation") in start.node.traits:
            environment[DISABLED] = "true"
        return environment

    def advertised(self, node: nodes.Node) -> tuple[cards.Card, ...]:
        count = node.amount(COUNT)
        each = node.amount(MEMORY) // count if count else 0
        return nodes.counted(count, each * nodes.unit_mib(each))

    def offered(self, node: cards.Node, settings: base.Settings) -> dict[str, int]:
        modes = node.traits & {trait(mode) for mode in EXCLUSIVE_MODES + SHARING_MODES}
        if modes & {trait(mode) for mode in EXCLUSIVE_MODES}:
            return {}
        found = {MEMORY: base.units(node, settings.memory_unit_mib)}
        if not modes or trait("core_mem") in modes:
            found[CORE] = base.percents(node)
        return found

    def reported(self, node: cards.Node) -> dict[str, int]:
        return {COUNT: len(node.cards)}

    def granted(self, request: base.Request, node: cards.Node) -> grants.Grant | None:
        request = _as_counted(request)
        demand = self.demand(request)
        annotations = request.pod.metadata.annotations
        if ALLOCATION in annotations:
            places = _by_allocation(request, node)
        elif INDEX in annotations:
            places = _by_index(request, node)
        elif len(node.cards) == 1:
            # The plugin of a one-card node starts pods that nobody annotated.
            places = records.Places(INDEX, node.cards)
        else:
            return None
        return records.grant(request, node, demand, {c.name: places for c in demand.containers})


def _demand(asking: reading.Asking, count: int, settings: base.Settings) -> demands.Demand:
    units, core = asking.get(MEMORY), asking.get(CORE)
    if not units:
        instead = f"add {MEMORY}, or take {CORE} away"
        raise asking.refused(CORE, "compute is asked for without memory", instead=instead)
    if core % _CORE_STEP:
        instead = f"write {reading.around(core, _CORE_STEP)}"
        raise asking.refused(CORE, f"{core} is not a multiple of {_CORE_STEP}", instead=instead)
    if core and count > 1:
        instead = f"take {CORE} or the label {COUNT} away"
        raise asking.refused(CORE, "a share of compute is of one card only", instead=instead)
    if units % count:
        instead = f"write a multiple of {count}, or change the label {COUNT}"
        raise asking.refused(MEMORY, f"{units} cannot be divided by {count} cards", instead=instead)
    return demands.Demand(
        cards=count,
        memory_mib=units // count * settings.memory_unit_mib,
        compute_percent=core,
        compute_mode=demands.ComputeMode.FIXED if core else demands.ComputeMode.NODE,
    )


def _refusing(*, core: bool, count: int) -> Iterator[str]:
    """The modes of labelled nodes that do not serve such a pod."""
    yield from EXCLUSIVE_MODES
    if core:
        yield from (mode for mode in SHARING_MODES if mode != "core_mem")
    if count > 1:
        yield "core_mem"


def _units(container: grants.ContainerGrant, unit: int) -> int:
    return sum(share.memory_mib // unit for share in container.shares)


def _pod_units(grant: grants.Grant, unit: int) -> int:
    """What gpushare calls the pod's amount: it never counted init containers."""
    apps = (c for c in grant.containers if c.role is demands.Role.APP)
    return sum(_units(container, unit) for container in apps)


def _card_units(found: list[cards.Card], unit: int) -> int:
    """The memory of all the cards, so that an amount is the same part of it on one and on many."""
    return sum(card.memory_mib // unit for card in found)


def _allocation(bound: base.Bound) -> str:
    positions = pods.app_positions(bound.pod)
    unit = bound.settings.memory_unit_mib
    written = {
        str(positions[container.name]): {
            str(share.index): share.memory_mib // unit for share in container.shares
        }
        for container in bound.grant.containers
        if container.name in positions
    }
    return msgspec.json.encode(written, order="sorted").decode()


def _as_counted(request: base.Request) -> base.Request:
    """The request in the unit in which the cluster counted when the pod was placed.

    The memory of the pod's card was written down in that unit, too.
    """
    written = request.pod.metadata.annotations.get(CARD_UNITS, "")
    if not (written.isascii() and written.isdigit() and len(written) < 10):
        return request
    unit = nodes.unit_mib(int(written))
    if unit == request.settings.memory_unit_mib:
        return request
    return msgspec.structs.replace(request, settings=base.other_unit(request.settings))


def _by_index(request: base.Request, node: cards.Node) -> records.Places:
    found = records.cards_at(INDEX, node, [records.text(request.pod, INDEX)])
    units = records.number(POD_UNITS, records.text(request.pod, POD_UNITS))
    asked = sum(_asked(request).values())
    if units != asked:
        problem = f"it says {units}; the containers ask for {asked}"
        raise records.Unreadable(POD_UNITS, problem)
    return records.Places(INDEX, found)


def _by_allocation(request: base.Request, node: cards.Node) -> records.Places:
    text = records.text(request.pod, ALLOCATION)
    written = records.decoded(ALLOCATION, text, dict[str, dict[str, int]])
    _check_amounts(written, _asked(request))
    indexes = next(iter(written.values())).keys()
    if any(amounts.keys() != indexes for amounts in written.values()):
        raise records.Unreadable(ALLOCATION, "its containers are not on the same cards")
    alone = request.pod.metadata.annotations.get(INDEX)
    if alone is not None and alone not in indexes:
        raise records.Unreadable(INDEX, f"card {reading.shown(alone)} is not in {ALLOCATION}")
    found = records.cards_at(ALLOCATION, node, indexes)
    return records.Places(ALLOCATION, sorted(found, key=lambda card: card.index))


def _check_amounts(written: dict[str, dict[str, int]], asked: dict[str, int]) -> None:
    if written.keys() != asked.keys() or not written:
        raise records.Unreadable(ALLOCATION, "its containers are not those that ask for memory")
    for position, amounts in written.items():
        units = asked[position]
        if not amounts or any(amount * len(amounts) != units for amount in amounts.values()):
            problem = f"container {position} asks for {units}, in equal parts"
            raise records.Unreadable(ALLOCATION, problem)


def _asked(request: base.Request) -> dict[str, int]:
    """Units by position in ``spec.containers``, as text; gpushare knows no other containers."""
    positions = pods.app_positions(request.pod)
    return {
        str(positions[asking.name]): asking.get(MEMORY)
        for asking in request.askings
        if asking.role is demands.Role.APP
    }
