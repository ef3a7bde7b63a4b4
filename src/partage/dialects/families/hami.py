"""HAMi: a number of cards, and of each of them memory in MiB or percent, and percent of compute.

Memory that is not named is all of it; and all of a card's memory without a word about compute is
the card itself. A container that names memory or compute but no number of cards means one card.
Compute is a guarantee that idle time may exceed: HAMi lifts its limit from a pod that is alone.

``nvidia.com/priority: 0`` is the high one and stands above what pods have that say nothing (their
priority is 1), so it becomes online quality, and 1 the normal one. The compute percent of both are
counted together, as there; those of offline pods would not be.

Restrictions and policies are annotations of the pod. HAMi takes unknown policies in silence; here
they are refused, and those without effect are told.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import msgspec

from partage.core import cards, demands, grants
from partage.dialects import contract, nodes, pods, rules
from partage.dialects.families import hami_records

CARDS = "nvidia.com/gpu"
MEMORY = "nvidia.com/gpumem"
PERCENT = "nvidia.com/gpumem-percentage"
CORES = "nvidia.com/gpucores"
PRIORITY = "nvidia.com/priority"

USE_MODEL = "nvidia.com/use-gputype"
NOT_MODEL = "nvidia.com/nouse-gputype"
USE_UUID = "nvidia.com/use-gpuuuid"
NOT_UUID = "nvidia.com/nouse-gpuuuid"
NUMA = "nvidia.com/numa-bind"
MODE = "nvidia.com/vgpu-mode"
NODES_BY = "hami.io/node-scheduler-policy"
CARDS_BY = "hami.io/gpu-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"

_SERVED_MODE = "hami-core"
_PLACING = ("binpack", "spread")
_POLICIES = (*_PLACING, "topology-aware", "mutex", "numa")
_WORDS = frozenset(
    {
        *(USE_MODEL, NOT_MODEL, USE_UUID, NOT_UUID, NUMA, MODE, NODES_BY, CARDS_BY, WEIGHTS),
        *(hami_records.ALLOCATED, hami_records.TO_ALLOCATE),
    }
)
_PARTS: dict[str, rules.Range] = {
    MEMORY: rules.units("MiB"),
    PERCENT: rules.PERCENT,
    CORES: msgspec.structs.replace(rules.PERCENT, least=0),
    PRIORITY: rules.Range("0 for high or 1 for low", 1, least=0),
}

_SHARES = frozenset({MEMORY, PERCENT, CORES})  # what a container can have of a card


def speaks(pod: pods.Pod) -> bool:
    """Whether a pod uses HAMi's words, and not only NVIDIA's."""
    if rules.first_field(pod, _PARTS):
        return True
    annotated = not _WORDS.isdisjoint(pod.metadata.annotations)
    return annotated and bool(rules.first_field(pod, {CARDS: rules.CARDS}))


class Hami(contract.Dialect):
    """Project HAMi, for NVIDIA cards."""

    name = "hami"
    resources: ClassVar = {CARDS: rules.CARDS, **_PARTS}
    vendor_resources = frozenset({CARDS})
    annotation_prefixes = ("hami.io/", "nvidia.com/")
    record_annotations = frozenset(
        {
            hami_records.ALLOCATED,
            hami_records.TO_ALLOCATE,
            hami_records.NODE,
            hami_records.TIME,
            hami_records.BIND_TIME,
            hami_records.BIND_PHASE,
        }
    )
    # Ten of nvidia.com/gpu for each card would surprise people who do not use HAMi.
    served_by_default = False

    def speaks(self, pod: pods.Pod) -> bool:
        return speaks(pod)

    def demand(self, request: contract.Request) -> demands.PodDemand:
        pod = request.pod
        _check_mode(pod)
        by_card = _policies(pod, CARDS_BY)
        changes = _restrictions(pod) | ({"max_tenants": 1} if "mutex" in by_card else {})
        return demands.PodDemand(
            containers=contract.containers(
                request, lambda asking: msgspec.structs.replace(_demand(asking), **changes)
            ),
            qos=_qos(request),
            dialect=self.name,
            nodes_by=_placing(_policies(pod, NODES_BY)),
            cards_by=_placing(by_card),
        )

    def implied(self, resources: Collection[str]) -> dict[str, int]:
        shared = not _SHARES.isdisjoint(resources)
        return {CARDS: 1} if shared and CARDS not in resources else {}

    def warnings(self, request: contract.Request) -> tuple[contract.Caution, ...]:
        pod = request.pod
        whole_card = f"{MEMORY} has no effect; {CORES} 100 is a card of its own"
        cautions = [
            contract.Caution(field=asking.path, problem=whole_card)
            for asking in request.askings
            if asking.get(CORES) == 100 and asking.get(MEMORY)
        ]
        bound = pod.metadata.annotations.get(NUMA, "").lower() in ("1", "t", "true")
        if bound or "numa" in _policies(pod, CARDS_BY):
            problem = "NUMA nodes are not considered; cards are chosen by their links"
            cautions.append(contract.Caution(problem=problem))
        if WEIGHTS in pod.metadata.annotations:
            problem = f"{rules.annotation_field(WEIGHTS)} has no effect"
            cautions.append(contract.Caution(problem=problem))
        return tuple(cautions)

    def offered(self, node: cards.Node, settings: contract.Settings) -> dict[str, int]:
        # Its other resources are known to its scheduler only; kubelets never see them.
        return {CARDS: settings.hami_split * len(node.cards)}

    def advertised(self, node: nodes.Node) -> tuple[cards.Card, ...]:
        return hami_records.registered(node)

    def marks(self, bound: contract.Bound) -> contract.Marks:
        return hami_records.marks(bound)

    def assigned(self) -> dict[str, str]:
        return {hami_records.BIND_PHASE: "success"}

    def environment(self, start: contract.Start) -> dict[str, str]:
        shares = start.container.shares
        environment = super().environment(start)
        for i, share in enumerate(shares):
            environment[f"CUDA_DEVICE_MEMORY_LIMIT_{i}"] = f"{share.memory_mib}m"
        environment["CUDA_DEVICE_SM_LIMIT"] = str(shares[0].compute_percent)
        if start.grant.qos is demands.Qos.ONLINE:
            environment["CUDA_TASK_PRIORITY"] = "0"
        return environment

    def granted(self, request: contract.Request, node: cards.Node) -> grants.Grant | None:
        return hami_records.granted(request, node, self.demand(request))


def _demand(asking: rules.Asking) -> demands.Demand:
    memory, percent = asking.get(MEMORY), asking.get(PERCENT)
    cores = asking.amounts.get(CORES)
    if asking.amounts.keys() == {PRIORITY}:
        problem = "a priority alone does not ask for a card"
        raise asking.refused(PRIORITY, problem, instead=f"add {CARDS}")
    if memory and percent:
        problem = f"memory is also asked for in MiB ({MEMORY})"
        raise asking.refused(PERCENT, problem, instead="name one of the two")
    count = asking.get(CARDS) or 1
    everything = not memory and percent in (0, 100)
    if cores == 100 or (cores is None and everything):
        return demands.Demand(cards=count, exclusive=demands.Exclusive.CARD)
    return demands.Demand(
        cards=count,
        memory_mib=memory,
        memory_percent=0 if memory else percent or 100,
        compute_percent=cores or 0,
        compute_ceiling_percent=100 if cores else 0,
        compute_mode=demands.ComputeMode.BURST if cores else demands.ComputeMode.BEST_EFFORT,
    )


def _qos(request: contract.Request) -> demands.Qos:
    saying = [asking for asking in request.askings if PRIORITY in asking.amounts]
    for asking in saying:
        if asking.get(PRIORITY) != saying[0].get(PRIORITY):
            problem = f"{saying[0].path} has a different priority"
            raise asking.refused(PRIORITY, problem, instead="give all containers the same priority")
    return demands.Qos.ONLINE if saying and not saying[0].get(PRIORITY) else demands.Qos.NORMAL


def _restrictions(pod: pods.Pod) -> dict[str, Any]:
    return {
        "models": tuple(map(_containing, rules.annotation_words(pod, USE_MODEL))),
        "not_models": tuple(map(_containing, rules.annotation_words(pod, NOT_MODEL))),
        "uuids": rules.annotation_words(pod, USE_UUID),
        "not_uuids": rules.annotation_words(pod, NOT_UUID),
    }


def _containing(text: str) -> str:
    """A pattern for names that contain the text."""
    return f"*{demands.literally(text.lower())}*"


def _policies(pod: pods.Pod, annotation: str) -> tuple[str, ...]:
    words = rules.annotation_words(pod, annotation)
    for word in words:
        if word not in _POLICIES:
            problem = f"{rules.shown(word)} is not a policy"
            instead = "write one or more of " + ", ".join(_POLICIES)
            raise rules.annotation_error(annotation, problem, instead=instead)
    return words


def _placing(policies: tuple[str, ...]) -> str:
    return next((policy for policy in policies if policy in _PLACING), "")


def _check_mode(pod: pods.Pod) -> None:
    modes = rules.annotation_words(pod, MODE)
    if modes and _SERVED_MODE not in modes:
        problem = f"{rules.shown(modes[0])} is not supported"
        instead = f"write {_SERVED_MODE}, or choose cards by {USE_MODEL}"
        raise rules.annotation_error(MODE, problem, instead=instead)
