"""Aliyun: gpushare, and cGPU, which grew out of it.

A container names an amount of memory, and all containers of a pod stand on the same card. cGPU adds
a share of the card's time on nodes that isolate it, and several cards by a label of the pod, among
which each amount is divided.

Nothing in the names says whether they count GiB or MiB: the node's plugin decides that for a whole
cluster, so it is a setting. Pods that name only the resource ``aliyun.com/gpu-count`` ask nothing
of gpushare; for it that resource is a number which the default scheduler subtracts.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from partage.core import cards, demands, grants
from partage.dialects import compute_policies, contract, modes, nodes, pods, records, rules

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
_DAEMON_SET = "gpushare"  # the label by which gpushare's device plugin is brought to a node
_CORE_STEP = 5


def trait(mode: str) -> str:
    """The trait of a node whose label sets this mode."""
    return f"aliyun/{mode}"


def mode(value: str, **rules: Any) -> modes.Mode:
    """The row of a mode that is set for the whole node."""
    return modes.Mode(labels=(MODE,), values=(value,), trait=trait(value), **rules)


_BEST_EFFORT = demands.ComputeMode.BEST_EFFORT
_MODES = (
    *(mode(value, withheld=frozenset({MEMORY, CORE})) for value in EXCLUSIVE_MODES),
    mode("cgpu", withheld=frozenset({CORE}), compute=_BEST_EFFORT),
    mode("mps", withheld=frozenset({CORE}), compute=_BEST_EFFORT, note="as `cgpu`: no MPS daemon"),
    mode("share", withheld=frozenset({CORE}), memory=modes.Memory.ADVICE, compute=_BEST_EFFORT),
    mode("core_mem", several_cards=False, mixes=False),
    *(
        modes.Mode(labels=(PLACEMENT,), values=(policy,), cards_by=policy)
        for policy in ("binpack", "spread")
    ),
    modes.Mode(
        labels=(NO_ISOLATION,),
        values=("true",),
        trait=trait("no-isolation"),
        memory=modes.Memory.ADVICE,
        note=f"containers have `{DISABLED}=true`",
    ),
    modes.Mode(
        labels=(_DAEMON_SET,),
        values=("true",),
        note="brings gpushare's device plugin to the node, or Partage's agent in its place"
        " (`deploy/gpushare-drop-in.yaml`); no effect besides",
    ),
)


class Aliyun(contract.Dialect):
    """gpushare and cGPU."""

    name = "aliyun"
    resources: ClassVar = {
        MEMORY: rules.units("GiB (or MiB, if the cluster counts those)"),
        CORE: rules.PERCENT,
    }
    inert_resources = frozenset({COUNT})
    unit_resource = MEMORY
    annotation_prefixes = ("ALIYUN_COM_", "scheduler.framework.gpushare.")
    record_annotations = frozenset(
        {INDEX, CARD_UNITS, POD_UNITS, ASSIGNED, ASSUME_TIME, ALLOCATION}
    )
    pod_labels = frozenset({COUNT})
    compute_variables = compute_policies.Variables(
        weight="ALIYUN_COM_GPU_SCHD_WEIGHT", high_priority="ALIYUN_COM_GPU_HIGH_PRIO"
    )
    modes = _MODES

    def demand(self, request: contract.Request) -> demands.PodDemand:
        count = rules.label_number(request.pod, COUNT, rules.CARDS) or 1
        containers = contract.containers(request, lambda a: _demand(a, count, request.settings))
        core = any(container.demand.compute_percent for container in containers)
        return demands.PodDemand(
            containers=containers,
            together=True,
            dialect=self.name,
            refused_by=self.refusing({MEMORY, CORE} if core else {MEMORY}, cards=count),
            tag=CORE_TAG if core else MEMORY_TAG,
            apart_from=tuple(
                (mode.trait, MEMORY_TAG if core else CORE_TAG)
                for mode in self.modes
                if not mode.mixes
            ),
        )

    def warnings(self, request: contract.Request) -> tuple[contract.Caution, ...]:
        if not rules.first_field(request.pod, {COUNT: rules.CARDS}):
            return ()
        problem = f"the resource {COUNT} has no effect"
        return (
            contract.Caution(problem=problem, instead=f"for several cards set the label {COUNT}"),
        )

    def marks(self, bound: contract.Bound) -> contract.Marks:
        unit, grant = bound.settings.memory_unit_mib, bound.grant
        uuids = {share.uuid for c in grant.containers for share in c.shares}
        held = [contract.card(bound.node, uuid) for uuid in uuids]
        annotations = {
            CARD_UNITS: str(_card_units(held, unit)),
            POD_UNITS: str(_pod_units(grant, unit)),
            ASSIGNED: "false",
            ASSUME_TIME: str(bound.now_ns),
        }
        if len(held) == 1:
            annotations[INDEX] = str(held[0].index)
        else:
            # No index: a reader that knows one card only must not take it for the whole pod.
            annotations[ALLOCATION] = _allocation(bound)
        return contract.Marks(annotations)

    def assigned(self) -> dict[str, str]:
        # The original writes the present into ASSUME_TIME, and so nobody knows any more when the
        # pod was placed. Its own tools read that annotation only while ASSIGNED is "false".
        return {ASSIGNED: "true"}

    def environment(self, start: contract.Start) -> dict[str, str]:
        unit = start.settings.memory_unit_mib
        held = [contract.card(start.node, share.uuid) for share in start.container.shares]
        environment = super().environment(start) | {
            INDEX: ",".join(str(card.index) for card in held),
            CARD_UNITS: str(_card_units(held, unit)),
            POD_UNITS: str(_pod_units(start.grant, unit)),
            CONTAINER_UNITS: str(_units(start.container, unit)),
        }
        if trait("no-isolation") in start.node.traits:
            environment[DISABLED] = "true"
        return environment

    def advertised(self, node: nodes.Node) -> tuple[cards.Card, ...]:
        count = node.amount(COUNT)
        units_per_card = node.amount(MEMORY) // count if count else 0
        return nodes.counted(count, units_per_card * nodes.unit_mib(units_per_card))

    def unit_mib(self, node: nodes.Node) -> int | None:
        # A kubelet goes on reporting the capacity of a plugin that has ended, so what counts is
        # whether the node offers anything at the moment.
        count, units = node.amount(COUNT), node.amount(MEMORY)
        if not count or not units or not node.offers(MEMORY):
            return None
        return nodes.unit_mib(units // count)

    def offered(self, node: cards.Node, settings: contract.Settings) -> dict[str, int]:
        return {
            MEMORY: contract.units(node, settings.memory_unit_mib),
            CORE: contract.percents(node),
        }

    def reported(self, node: cards.Node) -> dict[str, int]:
        return {COUNT: len(node.cards)}

    def granted(self, request: contract.Request, node: cards.Node) -> grants.Grant | None:
        request = _as_counted(request)
        demand = self.demand(request)
        annotations = request.pod.metadata.annotations
        if ALLOCATION in annotations:
            recorded = _by_allocation(request, node)
        elif INDEX in annotations:
            recorded = _by_index(request, node)
        elif len(node.cards) == 1:
            # The plugin of a one-card node starts pods that nobody annotated.
            recorded = records.RecordedCards(INDEX, node.cards)
        else:
            return None
        return records.grant(request, node, demand, {c.name: recorded for c in demand.containers})


def _demand(asking: rules.Asking, count: int, settings: contract.Settings) -> demands.Demand:
    units, core = asking.get(MEMORY), asking.get(CORE)
    if not units:
        instead = f"add {MEMORY}, or remove {CORE}"
        raise asking.refused(CORE, "compute is asked for without memory", instead=instead)
    if core % _CORE_STEP:
        instead = f"write {rules.around(core, _CORE_STEP)}"
        raise asking.refused(CORE, f"{core} is not a multiple of {_CORE_STEP}", instead=instead)
    if core and count > 1:
        instead = f"remove {CORE} or the label {COUNT}"
        raise asking.refused(
            CORE, "a share of compute is possible on one card only", instead=instead
        )
    if units % count:
        instead = f"write a multiple of {count}, or change the label {COUNT}"
        raise asking.refused(MEMORY, f"{units} cannot be divided by {count} cards", instead=instead)
    return demands.Demand(
        cards=count,
        memory_mib=units // count * settings.memory_unit_mib,
        compute_percent=core,
        compute_mode=demands.ComputeMode.FIXED if core else demands.ComputeMode.NODE,
    )


def _units(container: grants.ContainerGrant, unit: int) -> int:
    return sum(share.memory_mib // unit for share in container.shares)


def _pod_units(grant: grants.Grant, unit: int) -> int:
    """What gpushare calls the pod's amount: it never counted init containers."""
    apps = (c for c in grant.containers if c.role is demands.Role.APP)
    return sum(_units(container, unit) for container in apps)


def _card_units(held: list[cards.Card], unit: int) -> int:
    """The memory of all the cards, so that an amount is the same part of it on one and on many."""
    return sum(card.memory_mib // unit for card in held)


def _allocation(bound: contract.Bound) -> str:
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


def _as_counted(request: contract.Request) -> contract.Request:
    """The request in the unit in which the cluster counted when the pod was placed.

    The memory of the pod's card was written down in that unit, too.
    """
    written = request.pod.metadata.annotations.get(CARD_UNITS, "")
    if not (written.isascii() and written.isdigit() and len(written) < 10):
        return request
    unit = nodes.unit_mib(int(written))
    if unit == request.settings.memory_unit_mib:
        return request
    return msgspec.structs.replace(request, settings=contract.other_unit(request.settings))


def _by_index(request: contract.Request, node: cards.Node) -> records.RecordedCards:
    recorded = records.cards_at(INDEX, node, [records.text(request.pod, INDEX)])
    units = records.number(POD_UNITS, records.text(request.pod, POD_UNITS))
    demanded = sum(_asked(request).values())
    if units != demanded:
        problem = f"it says {units}; the containers ask for {demanded}"
        raise records.Unreadable(POD_UNITS, problem)
    return records.RecordedCards(INDEX, recorded)


def _by_allocation(request: contract.Request, node: cards.Node) -> records.RecordedCards:
    text = records.text(request.pod, ALLOCATION)
    written = records.decoded(ALLOCATION, text, dict[str, dict[str, int]])
    _check_amounts(written, _asked(request))
    indexes = next(iter(written.values())).keys()
    if any(amounts.keys() != indexes for amounts in written.values()):
        raise records.Unreadable(ALLOCATION, "its containers are not on the same cards")
    alone = request.pod.metadata.annotations.get(INDEX)
    if alone is not None and alone not in indexes:
        raise records.Unreadable(INDEX, f"card {rules.shown(alone)} is not in {ALLOCATION}")
    recorded = records.cards_at(ALLOCATION, node, indexes)
    return records.RecordedCards(ALLOCATION, sorted(recorded, key=lambda card: card.index))


def _check_amounts(written: dict[str, dict[str, int]], demanded: dict[str, int]) -> None:
    if written.keys() != demanded.keys() or not written:
        raise records.Unreadable(ALLOCATION, "its containers are not those that ask for memory")
    for position, amounts in written.items():
        units = demanded[position]
        if not amounts or any(amount * len(amounts) != units for amount in amounts.values()):
            problem = f"container {position} asks for {units}, in equal parts"
            raise records.Unreadable(ALLOCATION, problem)


def _asked(request: contract.Request) -> dict[str, int]:
    """Units by position in ``spec.containers``, as text; gpushare knows no other containers."""
    positions = pods.app_positions(request.pod)
    return {
        str(positions[asking.name]): asking.get(MEMORY)
        for asking in request.askings
        if asking.role is demands.Role.APP
    }
