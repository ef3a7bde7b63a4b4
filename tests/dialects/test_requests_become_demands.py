"""Every row of the table of requests, in the words of its family, as one neutral demand."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from partage.core import demands
from partage.core.demands import ComputeMode, Demand, Exclusive, Qos
from partage.dialects import contract
from tests.dialects import dialect_pods

ALIYUN = "aliyun.com"
TKE = "tke.cloud.tencent.com"
T9K = "tensorstack.dev"


class Row(NamedTuple):
    """A request of one container, and what it means."""

    limits: dialect_pods.Limits
    demand: Demand
    qos: Qos = Qos.NORMAL
    annotations: dict[str, str] = {}  # noqa: RUF012 - a NamedTuple's default, never changed
    labels: dict[str, str] = {}  # noqa: RUF012


def _whole(count: int = 1) -> Demand:
    return Demand(cards=count, exclusive=Exclusive.CARD)


ROWS = {
    "E1 elastic memory, .io": Row({"elasticgpu.io/gpu-memory": 256}, Demand(memory_mib=256)),
    "E1 elastic memory, .com": Row({"elasticgpu.com/gpu-memory": 256}, Demand(memory_mib=256)),
    "E2 elastic core and memory": Row(
        {"elasticgpu.io/gpu-core": 30, "elasticgpu.io/gpu-memory": 512},
        Demand(memory_mib=512, compute_percent=30, compute_mode=ComputeMode.FIXED),
    ),
    "E2 elastic core alone": Row(
        {"elasticgpu.com/gpu-core": 30},
        Demand(compute_percent=30, compute_mode=ComputeMode.FIXED),
    ),
    "E3 elastic whole cards": Row({"elasticgpu.io/gpu-core": 200}, _whole(2)),
    "G1 gaia share": Row(
        {"tencent.com/vcuda-core": 20, "tencent.com/vcuda-memory": 4},
        Demand(memory_mib=1024, compute_percent=20, compute_mode=ComputeMode.FIXED),
    ),
    "G2 gaia share with a ceiling": Row(
        {"tencent.com/vcuda-core": 20, "tencent.com/vcuda-memory": 4},
        Demand(
            memory_mib=1024,
            compute_percent=20,
            compute_ceiling_percent=50,
            compute_mode=ComputeMode.BURST,
        ),
        annotations={"tencent.com/vcuda-core-limit": "50"},
    ),
    "G2 gaia share that is its own ceiling": Row(
        {"tencent.com/vcuda-core": 20, "tencent.com/vcuda-memory": 4},
        Demand(
            memory_mib=1024,
            compute_percent=20,
            compute_ceiling_percent=20,
            compute_mode=ComputeMode.BURST,
        ),
        annotations={"tencent.com/vcuda-core-limit": "20"},
    ),
    "G3 gaia whole cards": Row({"tencent.com/vcuda-core": 300}, _whole(3)),
    "T1 t9k cards": Row({f"{T9K}/nvidia-gpu": 2}, _whole(2)),
    "T2 t9k percent of memory": Row(
        {f"{T9K}/nvidia-gpu-percent": 30}, Demand(memory_percent=30, memory_enforced=False)
    ),
    "T3 t9k node": Row(
        {f"{T9K}/nvidia-gpu-node": 1},
        Demand(cards=demands.ALL_CARDS, exclusive=Exclusive.NODE),
    ),
    "C1 aliyun memory": Row(
        {f"{ALIYUN}/gpu-mem": 3}, Demand(memory_mib=3072, compute_mode=ComputeMode.NODE)
    ),
    "C2 aliyun memory and core": Row(
        {f"{ALIYUN}/gpu-mem": 2, f"{ALIYUN}/gpu-core.percentage": 30},
        Demand(memory_mib=2048, compute_percent=30, compute_mode=ComputeMode.FIXED),
    ),
    "C3 aliyun memory on two cards": Row(
        {f"{ALIYUN}/gpu-mem": 8},
        Demand(cards=2, memory_mib=4096, compute_mode=ComputeMode.NODE),
        labels={f"{ALIYUN}/gpu-count": "2"},
    ),
    "Q1 qgpu share": Row(
        {f"{TKE}/qgpu-core": 30, f"{TKE}/qgpu-memory": 5},
        Demand(memory_mib=5120, compute_percent=30, compute_mode=ComputeMode.NODE, max_tenants=16),
    ),
    "Q2 qgpu whole cards": Row({f"{TKE}/qgpu-core": 200}, _whole(2)),
    "Q3 qgpu slice of two cards": Row(
        {f"{TKE}/qgpu-core": 160, f"{TKE}/qgpu-memory": 60},
        Demand(
            cards=2,
            memory_mib=30 * 1024,
            compute_percent=80,
            compute_mode=ComputeMode.NODE,
            max_tenants=16,
        ),
    ),
    "Q3 qgpu slice that does not divide": Row(
        {f"{TKE}/qgpu-core": 121, f"{TKE}/qgpu-memory": 31},
        Demand(
            cards=2,
            memory_mib=15 * 1024,
            compute_percent=60,
            compute_mode=ComputeMode.NODE,
            max_tenants=16,
        ),
    ),
    "Q4 qgpu online": Row(
        {f"{TKE}/qgpu-memory": 4},
        Demand(memory_mib=4096, max_tenants=16),
        qos=Qos.ONLINE,
        annotations={f"{TKE}/app-class": "online"},
    ),
    "Q5 qgpu offline": Row(
        {f"{TKE}/qgpu-core-greedy": 40, f"{TKE}/qgpu-memory": 4},
        Demand(memory_mib=4096, compute_percent=40, compute_mode=ComputeMode.NODE, max_tenants=16),
        qos=Qos.OFFLINE,
        annotations={f"{TKE}/app-class": "offline"},
    ),
    "N1 nvidia cards": Row({"nvidia.com/gpu": 4}, _whole(4)),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_request_means_what_the_table_says(row: Row) -> None:
    """A container's amounts become exactly the demand of their row, and the pod its quality."""
    demand = dialect_pods.demand(
        dialect_pods.single(row.limits, annotations=row.annotations, labels=row.labels)
    )
    assert demand.containers == (demands.ContainerDemand("main", row.demand),)
    assert demand.qos is row.qos


def test_aliyun_counts_mib_where_the_plugin_does() -> None:
    """With the unit MiB the same number means that many MiB."""
    settings = contract.Settings(memory_unit_mib=1)
    demand = dialect_pods.demand(dialect_pods.single({"aliyun.com/gpu-mem": 8138}), settings)
    assert demand.containers[0].demand.memory_mib == 8138


def test_aliyun_containers_stand_on_the_same_cards() -> None:
    """Two gpushare containers are one bundle; containers of other families are not."""
    amounts = {"aliyun.com/gpu-mem": 5}
    pod = dialect_pods.pod(
        dialect_pods.container("a", amounts), dialect_pods.container("b", amounts)
    )
    assert dialect_pods.demand(pod).together
    alone = {"elasticgpu.io/gpu-memory": 5}
    pod = dialect_pods.pod(dialect_pods.container("a", alone), dialect_pods.container("b", alone))
    assert not dialect_pods.demand(pod).together


def test_every_aliyun_container_divides_among_the_cards() -> None:
    """The label divides each container's own amount."""
    pod = dialect_pods.pod(
        dialect_pods.container("a", {"aliyun.com/gpu-mem": 8}),
        dialect_pods.container("b", {"aliyun.com/gpu-mem": 4}),
        labels={"aliyun.com/gpu-count": "2"},
    )
    amounts = [(c.demand.cards, c.demand.memory_mib) for c in dialect_pods.demand(pod).containers]
    assert amounts == [(2, 4096), (2, 2048)]


@pytest.mark.parametrize(("app_class", "policy"), [("online", "spread"), ("offline", "binpack")])
def test_qgpu_spreads_online_and_packs_offline(app_class: str, policy: str) -> None:
    """The vendor's placement of the two classes is asked for by the pod itself."""
    limits = {f"{TKE}/qgpu-memory": 4} | (
        {f"{TKE}/qgpu-core-greedy": 10} if app_class == "offline" else {}
    )
    pod = dialect_pods.single(limits, annotations={f"{TKE}/app-class": app_class})
    assert dialect_pods.demand(pod).cards_by == policy


def test_init_containers_come_first_with_their_roles() -> None:
    """Containers are listed in starting order; one that restarts always is a sidecar."""
    limits = {"elasticgpu.io/gpu-memory": 100}
    pod = dialect_pods.pod(
        dialect_pods.container("app", limits),
        dialect_pods.container("logs"),
        init=(
            dialect_pods.container("fetch", limits),
            dialect_pods.container("proxy", limits, restart_policy="Always"),
            dialect_pods.container("wait"),
        ),
    )
    listed = [(c.name, c.role) for c in dialect_pods.demand(pod).containers]
    assert listed == [
        ("fetch", demands.Role.INIT),
        ("proxy", demands.Role.SIDECAR),
        ("app", demands.Role.APP),
    ]


def test_a_demand_names_its_dialect() -> None:
    """The family is kept, because it decides what is written back."""
    firsts = {
        "elasticgpu.io/gpu-memory": "elastic",
        "tencent.com/vcuda-core": "gaia",
        f"{T9K}/nvidia-gpu": "t9k",
        f"{ALIYUN}/gpu-mem": "aliyun",
        f"{TKE}/qgpu-core": "qgpu",
        "nvidia.com/gpu": "nvidia",
        "nvidia.com/gpumem": "hami",
        "partage.dev/cards": "partage",
    }
    spoken = {
        name: dialect_pods.demand(dialect_pods.single({name: 100})).dialect for name in firsts
    }
    assert spoken == firsts
