"""HAMi's words: the defaults its webhook fills in, its priorities, restrictions and policies."""

from __future__ import annotations

import pytest

from partage.core import demands
from partage.core.demands import ComputeMode, Demand, Exclusive, Qos
from partage.core.placement import plans
from tests.dialects import dialect_pods

GPU = "nvidia.com/gpu"
MEMORY = "nvidia.com/gpumem"
PERCENT = "nvidia.com/gpumem-percentage"
CORES = "nvidia.com/gpucores"
PRIORITY = "nvidia.com/priority"

ROWS = {
    "memory only is one card": ({MEMORY: 3000}, Demand(memory_mib=3000)),
    "memory on two cards": ({GPU: 2, MEMORY: 3000}, Demand(cards=2, memory_mib=3000)),
    "memory in percent": ({GPU: 1, PERCENT: 50}, Demand(memory_percent=50)),
    "memory and cores": (
        {GPU: 1, MEMORY: 3000, CORES: 30},
        Demand(
            memory_mib=3000,
            compute_percent=30,
            compute_ceiling_percent=100,
            compute_mode=ComputeMode.BURST,
        ),
    ),
    "cores without memory have all of it": (
        {CORES: 30},
        Demand(
            memory_percent=100,
            compute_percent=30,
            compute_ceiling_percent=100,
            compute_mode=ComputeMode.BURST,
        ),
    ),
    "all cores are the card": ({GPU: 1, MEMORY: 3000, CORES: 100}, None),
    "all memory is the card": ({GPU: 1, PERCENT: 100}, None),
    "all memory but no cores is a share": (
        {GPU: 1, PERCENT: 100, CORES: 0},
        Demand(memory_percent=100),
    ),
    "a priority does not change what is asked": ({GPU: 1, PRIORITY: 1}, None),
}


@pytest.mark.parametrize(("limits", "meant"), ROWS.values(), ids=ROWS)
def test_a_request_means_what_the_webhook_makes_of_it(
    limits: dialect_pods.Limits, meant: Demand | None
) -> None:
    """What is left out is filled in as HAMi does; None stands for a card of its own."""
    demand = dialect_pods.demand(dialect_pods.single(limits))
    assert demand.dialect == "hami"
    assert demand.containers[0].demand == (meant or Demand(exclusive=Exclusive.CARD))


@pytest.mark.parametrize(("priority", "qos"), [(0, Qos.ONLINE), (1, Qos.NORMAL)])
def test_high_priority_is_online_and_low_is_what_everybody_has(priority: int, qos: Qos) -> None:
    """HAMi's low priority is its default, so only the high one is special."""
    assert dialect_pods.demand(dialect_pods.single({MEMORY: 100, PRIORITY: priority})).qos is qos
    assert dialect_pods.demand(dialect_pods.single({MEMORY: 100})).qos is Qos.NORMAL


@pytest.mark.parametrize(
    "annotation", ["nvidia.com/use-gputype", "hami.io/gpu-scheduler-policy", "nvidia.com/vgpu-mode"]
)
def test_an_annotation_of_hami_makes_the_plain_number_hami(annotation: str) -> None:
    """A restriction beside nvidia.com/gpu would otherwise be ignored in silence."""
    value = {"hami.io/gpu-scheduler-policy": "spread", "nvidia.com/vgpu-mode": "hami-core"}
    pod = dialect_pods.single({GPU: 1}, annotations={annotation: value.get(annotation, "A100")})
    assert dialect_pods.demand(pod).dialect == "hami"


def test_a_part_in_any_container_makes_the_whole_pod_hami() -> None:
    """A container with the plain number beside one with memory speaks HAMi as well."""
    pod = dialect_pods.pod(
        dialect_pods.container("a", {GPU: 1}), dialect_pods.container("b", {MEMORY: 100})
    )
    demand = dialect_pods.demand(pod)
    assert demand.dialect == "hami"
    assert [c.demand.whole for c in demand.containers] == [True, False]


def test_models_are_substrings_without_regard_to_case() -> None:
    """HAMi looks for the text anywhere in the model's name; signs of patterns are plain text."""
    annotations = {"nvidia.com/use-gputype": "A100, h[1]*", "nvidia.com/nouse-gputype": "40GB"}
    pod_demand = dialect_pods.demand(dialect_pods.single({MEMORY: 100}, annotations=annotations))
    demand = pod_demand.containers[0].demand
    assert plans.model_accepted(demand, "NVIDIA A100-SXM4-80GB")
    assert plans.model_accepted(demand, "Odd H[1]* Card")
    assert not plans.model_accepted(demand, "NVIDIA A100-SXM4-40GB")
    assert not plans.model_accepted(demand, "NVIDIA H100")


def test_uuids_are_taken_as_they_are() -> None:
    """Both lists of uuids reach the demand, without blanks."""
    annotations = {"nvidia.com/use-gpuuuid": "GPU-1, GPU-2", "nvidia.com/nouse-gpuuuid": "GPU-3"}
    demand = dialect_pods.demand(
        dialect_pods.single({MEMORY: 100}, annotations=annotations)
    ).containers[0]
    assert demand.demand.uuids == ("GPU-1", "GPU-2")
    assert demand.demand.not_uuids == ("GPU-3",)


def test_a_list_may_have_sixty_four_entries_of_128_characters() -> None:
    """The longest list that is allowed is read in full."""
    models = ",".join(["a" * 128] * 64)
    pod = dialect_pods.single({MEMORY: 100}, annotations={"nvidia.com/use-gputype": models})
    assert len(dialect_pods.demand(pod).containers[0].demand.models) == 64


def test_an_empty_restriction_restricts_nothing() -> None:
    """HAMi reads an empty annotation as none."""
    annotations = {"nvidia.com/use-gputype": " ", "nvidia.com/use-gpuuuid": ""}
    demand = dialect_pods.demand(dialect_pods.single({MEMORY: 100}, annotations=annotations))
    assert demand.containers[0].demand == Demand(memory_mib=100)


def test_policies_choose_nodes_and_cards_apart() -> None:
    """The node policy and the card policy are two; words that place nothing are passed over."""
    annotations = {
        "hami.io/node-scheduler-policy": "binpack",
        "hami.io/gpu-scheduler-policy": "topology-aware,spread",
    }
    demand = dialect_pods.demand(dialect_pods.single({MEMORY: 100}, annotations=annotations))
    assert (demand.nodes_by, demand.cards_by) == ("binpack", "spread")


def test_mutex_wants_idle_cards() -> None:
    """HAMi's mutex policy takes cards on which nobody is."""
    annotations = {"hami.io/gpu-scheduler-policy": "mutex"}
    demand = dialect_pods.demand(dialect_pods.single({MEMORY: 100}, annotations=annotations))
    assert demand.containers[0].demand.max_tenants == 1
    assert demand.containers[0].demand.exclusive is demands.Exclusive.NO
