"""qGPU, Tencent's sharing in the kernel: percent of compute and GiB of memory.

Three classes of pods exist. Normal ones name both amounts. Online ones name memory only, because
they have the card's time whenever they want it. Offline ones name ``qgpu-core-greedy``, their part
of the time that online pods leave. How strictly the percent of normal and offline pods hold is
decided by a label of the node, not by the pod.

More than 100 percent that are not whole cards are split evenly among the fewest cards. The division
rounds down, and what it loses is told.
"""

from __future__ import annotations

from typing import ClassVar

from partage.core import cards, demands
from partage.dialects import contract, modes, nodes, rules

CORE = "tke.cloud.tencent.com/qgpu-core"
GREEDY = "tke.cloud.tencent.com/qgpu-core-greedy"
MEMORY = "tke.cloud.tencent.com/qgpu-memory"
CLASS = "tke.cloud.tencent.com/app-class"
POLICY = "tke.cloud.tencent.com/qgpu-schedule-policy"
_DAEMON_SET = "qgpu-device-enable"  # the label by which Tencent's components come to a node

MOST_TENANTS = 16
_GIB = 1024
_CORE_STEP = 5
_CLASSES = {"online": demands.Qos.ONLINE, "offline": demands.Qos.OFFLINE}
# The vendor spreads online pods and packs offline ones; normal ones follow the cluster.
_CARDS_BY = {demands.Qos.ONLINE: "spread", demands.Qos.OFFLINE: "binpack"}
_POLICIES = {
    "best-effort": ("be", demands.ComputeMode.BEST_EFFORT),
    "fixed-share": ("fs", demands.ComputeMode.FIXED),
    "burst-share": ("bs", demands.ComputeMode.BURST),
}


class Qgpu(contract.Dialect):
    """Tencent qGPU."""

    name = "qgpu"
    resources: ClassVar = {
        CORE: rules.CORES,
        GREEDY: rules.PERCENT,
        MEMORY: rules.units("GiB"),
    }
    annotation_prefixes = ("tke.cloud.tencent.com/",)
    measures: ClassVar = {CORE: contract.COMPUTE, MEMORY: contract.memory(_GIB)}
    provisioner = contract.Provisioner(
        names=("elasticgpu.io/qgpu",),
        source="qGPU",
        needs=(CORE, MEMORY),
        compute_step=_CORE_STEP,
        most_tenants=MOST_TENANTS,
    )
    modes = (
        *(
            modes.Mode(
                labels=(POLICY,), values=(policy, short), trait=f"qgpu/{policy}", compute=held
            )
            for policy, (short, held) in _POLICIES.items()
        ),
        modes.Mode(
            labels=(_DAEMON_SET,),
            values=("enable",),
            note="brings Tencent's DaemonSet to the node; no effect on Partage",
        ),
    )

    def offered(self, node: cards.Node, _settings: contract.Settings) -> dict[str, int]:
        percents = contract.percents(node)
        return {CORE: percents, GREEDY: percents, MEMORY: contract.units(node, _GIB)}

    def demand(self, request: contract.Request) -> demands.PodDemand:
        spoken = rules.annotation_choice(request.pod, CLASS, tuple(_CLASSES))
        qos = _CLASSES.get(spoken, demands.Qos.NORMAL)
        most_cards = request.settings.qgpu_max_cards
        return demands.PodDemand(
            containers=contract.containers(
                request, lambda asking: _demand(asking, qos, most_cards)
            ),
            qos=qos,
            dialect=self.name,
            cards_by=_CARDS_BY.get(qos, ""),
        )

    def advertised(self, node: nodes.Node) -> tuple[cards.Card, ...]:
        return nodes.divided(node, node.amount(CORE) // 100, MEMORY, 1024)

    def warnings(self, request: contract.Request) -> tuple[contract.Caution, ...]:
        cautions = []
        for asking in request.askings:
            core, memory = asking.get(CORE), asking.get(MEMORY)
            count = -(-core // 100)
            if core and not core % 100 and memory:
                problem = f"{MEMORY} has no effect on whole cards"
                cautions.append(contract.Caution(field=asking.path, problem=problem))
            elif count > 1 and (core % count or memory % count):
                problem = (
                    f"{core} % and {memory} GiB on {count} cards become"
                    f" {core // count} % and {memory // count} GiB on each"
                )
                cautions.append(contract.Caution(field=asking.path, problem=problem))
        return tuple(cautions)


def _demand(asking: rules.Asking, qos: demands.Qos, most_cards: int) -> demands.Demand:
    if qos is demands.Qos.ONLINE:
        return _online(asking)
    if qos is demands.Qos.OFFLINE:
        return _offline(asking)
    if asking.get(GREEDY):
        instead = f"set the annotation {CLASS}: offline, or name {CORE}"
        raise asking.refused(GREEDY, "only offline pods can use this resource", instead=instead)
    if not asking.get(CORE):
        instead = f"add {CORE}, or set the annotation {CLASS}: online"
        raise asking.refused(MEMORY, "only online pods can ask for memory alone", instead=instead)
    if asking.get(CORE) % 100 == 0:
        cards = asking.get(CORE) // 100
        return demands.Demand(cards=cards, exclusive=demands.Exclusive.CARD)
    return _split(asking, most_cards)


def _online(asking: rules.Asking) -> demands.Demand:
    for resource in (CORE, GREEDY):
        if asking.get(resource):
            problem = "the compute of online pods is not limited"
            raise asking.refused(resource, problem, instead=f"name {MEMORY} only")
    return demands.Demand(memory_mib=_GIB * asking.get(MEMORY), max_tenants=MOST_TENANTS)


def _offline(asking: rules.Asking) -> demands.Demand:
    if asking.get(CORE):
        problem = "offline pods have no fixed share of compute"
        raise asking.refused(CORE, problem, instead=f"name {GREEDY}, 1 to 100")
    if not asking.get(GREEDY):
        problem = "offline pods must say which part of the spare compute they want"
        raise asking.refused(MEMORY, problem, instead=f"add {GREEDY}, 1 to 100")
    return demands.Demand(
        memory_mib=_GIB * _memory(asking, GREEDY),
        compute_percent=asking.get(GREEDY),
        compute_mode=demands.ComputeMode.NODE,
        max_tenants=MOST_TENANTS,
    )


def _split(asking: rules.Asking, most_cards: int) -> demands.Demand:
    core, memory = asking.get(CORE), _memory(asking, CORE)
    if core < 100 and core % _CORE_STEP:
        instead = f"write {rules.around(core, _CORE_STEP)}"
        raise asking.refused(CORE, f"{core} is not a multiple of {_CORE_STEP}", instead=instead)
    cards = -(-core // 100)
    if cards > most_cards:
        instead = f"write at most {100 * most_cards}, or whole cards: {100 * cards}"
        raise asking.refused(CORE, f"a slice cannot span {cards} cards", instead=instead)
    if memory < cards:
        problem = f"{memory} GiB are not enough for {cards} cards"
        raise asking.refused(MEMORY, problem, instead=f"write at least {cards}")
    return demands.Demand(
        cards=cards,
        memory_mib=_GIB * (memory // cards),
        compute_percent=core // cards,
        compute_mode=demands.ComputeMode.NODE,
        max_tenants=MOST_TENANTS,
    )


def _memory(asking: rules.Asking, beside: str) -> int:
    memory = asking.get(MEMORY)
    if not memory:
        raise asking.refused(beside, "compute is asked for without memory", instead=f"add {MEMORY}")
    return memory
