"""Partage's own words: shares, whole cards, all cards, and what annotations say about a pod."""

from __future__ import annotations

import pytest

from partage.core import demands, errors
from partage.core.demands import ComputeMode, Demand, Exclusive, Qos
from partage.dialects import contract
from tests.dialects import dialect_pods

CARDS = "partage.dev/cards"
MEMORY = "partage.dev/memory-mib"
PERCENT = "partage.dev/memory-percent"
COMPUTE = "partage.dev/compute-percent"

ROWS: dict[str, tuple[dialect_pods.Limits, dict[str, str], Demand]] = {
    "whole cards": ({CARDS: 2}, {}, Demand(cards=2, exclusive=Exclusive.CARD)),
    "memory on one card": ({CARDS: 1, MEMORY: 4096}, {}, Demand(memory_mib=4096)),
    "memory on two cards": ({CARDS: 2, MEMORY: 4096}, {}, Demand(cards=2, memory_mib=4096)),
    "memory in percent": ({CARDS: 1, PERCENT: 25}, {}, Demand(memory_percent=25)),
    "memory in percent, of one card if none is named": (
        {PERCENT: 25},
        {},
        Demand(memory_percent=25),
    ),
    "compute alone, of one card": (
        {COMPUTE: 30},
        {},
        Demand(compute_percent=30, compute_mode=ComputeMode.FIXED),
    ),
    "MiB and compute, of one card": (
        {MEMORY: 4096, COMPUTE: 30},
        {},
        Demand(memory_mib=4096, compute_percent=30, compute_mode=ComputeMode.FIXED),
    ),
    "compute holds exactly": (
        {CARDS: 1, MEMORY: 4096, COMPUTE: 30},
        {},
        Demand(memory_mib=4096, compute_percent=30, compute_mode=ComputeMode.FIXED),
    ),
    "compute up to a ceiling": (
        {CARDS: 1, MEMORY: 4096, COMPUTE: 30},
        {"partage.dev/compute-ceiling": "80"},
        Demand(
            memory_mib=4096,
            compute_percent=30,
            compute_ceiling_percent=80,
            compute_mode=ComputeMode.BURST,
        ),
    ),
    "all cards, whole": (
        {CARDS: 1},
        {CARDS: "all"},
        Demand(cards=demands.ALL_CARDS, exclusive=Exclusive.CARD),
    ),
    "a share of all cards": (
        {CARDS: 1, PERCENT: 10},
        {CARDS: "all"},
        Demand(cards=demands.ALL_CARDS, memory_percent=10),
    ),
    "a share of all cards, by the annotation alone": (
        {PERCENT: 10},
        {CARDS: "all"},
        Demand(cards=demands.ALL_CARDS, memory_percent=10),
    ),
    "models and cards by name": (
        {CARDS: 1, MEMORY: 4096},
        {"partage.dev/models": "*A100*, !*40GB*", "partage.dev/uuids": "GPU-1, !GPU-2"},
        Demand(
            memory_mib=4096,
            models=("*A100*",),
            not_models=("*40GB*",),
            uuids=("GPU-1",),
            not_uuids=("GPU-2",),
        ),
    ),
}


@pytest.mark.parametrize(("limits", "annotations", "meant"), ROWS.values(), ids=ROWS)
def test_a_request_means_what_it_says(
    limits: dialect_pods.Limits, annotations: dict[str, str], meant: Demand
) -> None:
    """Each way to ask becomes exactly one demand."""
    demand = dialect_pods.demand(dialect_pods.single(limits, annotations=annotations))
    assert demand.containers == (demands.ContainerDemand("main", meant),)
    assert demand.dialect == "partage"


def test_a_ceiling_concerns_only_those_who_have_a_share() -> None:
    """A container without a share of compute beside one with it has no ceiling."""
    pod = dialect_pods.pod(
        dialect_pods.container("a", {CARDS: 1, MEMORY: 100, COMPUTE: 30}),
        dialect_pods.container("b", {CARDS: 1, MEMORY: 100}),
        annotations={"partage.dev/compute-ceiling": "80"},
    )
    ceilings = [c.demand.compute_ceiling_percent for c in dialect_pods.demand(pod).containers]
    assert ceilings == [80, 0]


def test_a_ceiling_may_be_the_share_itself() -> None:
    """A ceiling as high as the share leaves no burst, and is no contradiction."""
    annotations = {"partage.dev/compute-ceiling": "30"}
    demand = dialect_pods.demand(
        dialect_pods.single({CARDS: 1, COMPUTE: 30}, annotations=annotations)
    )
    assert demand.containers[0].demand.compute_ceiling_percent == 30


def test_annotations_set_quality_and_policy_of_the_pod() -> None:
    """Quality of service and policy are the pod's; the policy chooses nodes and cards."""
    annotations = {"partage.dev/qos": "offline", "partage.dev/policy": "spread"}
    demand = dialect_pods.demand(
        dialect_pods.single({CARDS: 1, MEMORY: 4096}, annotations=annotations)
    )
    assert demand.qos is Qos.OFFLINE
    assert (demand.nodes_by, demand.cards_by) == ("spread", "spread")


def test_a_cluster_may_offer_further_policies() -> None:
    """The policies a pod may name are those the cluster has."""
    settings = contract.Settings(policies=("binpack", "priced"))
    pod = dialect_pods.single(
        {CARDS: 1, MEMORY: 4096}, annotations={"partage.dev/policy": "priced"}
    )
    assert dialect_pods.demand(pod, settings).nodes_by == "priced"


@pytest.mark.parametrize(
    ("limits", "annotations", "field"),
    [
        ({"partage.dev/memory-mb": 4096}, {}, "limits[partage.dev/memory-mb]"),
        ({CARDS: 1, "partage.dev/memory": 4096}, {}, "limits[partage.dev/memory]"),
        ({CARDS: 1}, {"partage.dev/model": "*A100*"}, "annotations[partage.dev/model]"),
    ],
)
def test_a_slip_in_a_name_is_not_passed_over(
    limits: dialect_pods.Limits, annotations: dict[str, str], field: str
) -> None:
    """It would make a whole card of a share, or drop a restriction."""
    with pytest.raises(errors.DemandError, match="there is no such") as caught:
        dialect_pods.demand(dialect_pods.single(limits, annotations=annotations))
    assert field in caught.value.field
