"""Every request that a family does not allow is refused at its exact field, with a way out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from partage.dialects import contract
from tests.dialects import dialect_pods

ALIYUN_MEMORY = "aliyun.com/gpu-mem"
ALIYUN_CORE = "aliyun.com/gpu-core.percentage"
ALIYUN_COUNT = "aliyun.com/gpu-count"
CORE = "tke.cloud.tencent.com/qgpu-core"
GREEDY = "tke.cloud.tencent.com/qgpu-core-greedy"
MEMORY = "tke.cloud.tencent.com/qgpu-memory"
ONLINE = {"tke.cloud.tencent.com/app-class": "online"}
OFFLINE = {"tke.cloud.tencent.com/app-class": "offline"}
GAIA_CORE = "tencent.com/vcuda-core"
GAIA_MEMORY = "tencent.com/vcuda-memory"
GAIA_LIMIT = "tencent.com/vcuda-core-limit"
T9K_CARDS = "tensorstack.dev/nvidia-gpu"
T9K_PERCENT = "tensorstack.dev/nvidia-gpu-percent"
T9K_NODE = "tensorstack.dev/nvidia-gpu-node"
HAMI = "nvidia.com"
OWN = "partage.dev"


class Refused(NamedTuple):
    """A request of one container, the resource or annotation at fault, and the reason."""

    limits: dialect_pods.Limits
    at: str
    why: str
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}


ELASTIC = {
    "core above a card": Refused(
        {"elasticgpu.io/gpu-core": 150}, "elasticgpu.io/gpu-core", "not a number of whole cards"
    ),
    "both domains in one container": Refused(
        {"elasticgpu.io/gpu-core": 30, "elasticgpu.com/gpu-memory": 100},
        "elasticgpu.com/gpu-memory",
        "already names elasticgpu.io",
    ),
    "4GB": Refused(
        {"elasticgpu.io/gpu-memory": "4GB"}, "elasticgpu.io/gpu-memory", "not a quantity"
    ),
}
GAIA = {
    "core above a card": Refused(
        {GAIA_CORE: 150, GAIA_MEMORY: 4}, GAIA_CORE, "not a number of whole cards"
    ),
    "core without memory": Refused({GAIA_CORE: 20}, GAIA_CORE, "needs memory too"),
    "memory alone": Refused({GAIA_MEMORY: 4}, GAIA_MEMORY, "not enough"),
    "ceiling that is no number": Refused(
        {GAIA_CORE: 20, GAIA_MEMORY: 4}, GAIA_LIMIT, "not a quantity", {GAIA_LIMIT: "half"}
    ),
    "ceiling that is no integer": Refused(
        {GAIA_CORE: 20, GAIA_MEMORY: 4}, GAIA_LIMIT, "not a whole number", {GAIA_LIMIT: "50.5"}
    ),
    "ceiling below the share": Refused(
        {GAIA_CORE: 20, GAIA_MEMORY: 4}, GAIA_LIMIT, "is below 20", {GAIA_LIMIT: "10"}
    ),
    "ceiling above a card": Refused(
        {GAIA_CORE: 20, GAIA_MEMORY: 4}, GAIA_LIMIT, "not between 1 and 100", {GAIA_LIMIT: "101"}
    ),
}
T9K = {
    "two nodes": Refused({T9K_NODE: 2}, T9K_NODE, "not between 1 and 1"),
    "a node and cards": Refused({T9K_NODE: 1, T9K_CARDS: 1}, T9K_CARDS, "takes the whole node"),
    "a node and a percentage": Refused(
        {T9K_NODE: 1, T9K_PERCENT: 10}, T9K_PERCENT, "takes the whole node"
    ),
    "percent above a card": Refused({T9K_PERCENT: 101}, T9K_PERCENT, "not between 1 and 100"),
    "cards and a percentage": Refused(
        {T9K_CARDS: 1, T9K_PERCENT: 10}, T9K_PERCENT, "also asks for whole cards"
    ),
}
ALIYUN = {
    "core not in steps of 5": Refused(
        {ALIYUN_MEMORY: 2, ALIYUN_CORE: 33}, ALIYUN_CORE, "not a multiple of 5"
    ),
    "core above a card": Refused(
        {ALIYUN_MEMORY: 2, ALIYUN_CORE: 105}, ALIYUN_CORE, "not between 1 and 100"
    ),
    "core without memory": Refused({ALIYUN_CORE: 30}, ALIYUN_CORE, "without memory"),
    "core on several cards": Refused(
        {ALIYUN_MEMORY: 2, ALIYUN_CORE: 30},
        ALIYUN_CORE,
        "on one card only",
        labels={ALIYUN_COUNT: "2"},
    ),
    "memory that does not divide": Refused(
        {ALIYUN_MEMORY: 9}, ALIYUN_MEMORY, "divided by 2", labels={ALIYUN_COUNT: "2"}
    ),
    "no cards": Refused(
        {ALIYUN_MEMORY: 8}, ALIYUN_COUNT, "not between 1 and", labels={ALIYUN_COUNT: "0"}
    ),
    "a count that is no number": Refused(
        {ALIYUN_MEMORY: 8}, ALIYUN_COUNT, "not a quantity", labels={ALIYUN_COUNT: "two"}
    ),
}
QGPU = {
    "core not in steps of 5": Refused({CORE: 33, MEMORY: 5}, CORE, "not a multiple of 5"),
    "core without memory": Refused({CORE: 30}, CORE, "without memory"),
    "slice without memory": Refused({CORE: 160}, CORE, "without memory"),
    "slice of three cards": Refused({CORE: 250, MEMORY: 30}, CORE, "cannot span 3 cards"),
    "no memory": Refused({CORE: 30, MEMORY: 0}, MEMORY, "not between 1 and"),
    "memory split to nothing": Refused({CORE: 160, MEMORY: 1}, MEMORY, "not enough for 2 cards"),
    "greedy without offline": Refused({GREEDY: 40, MEMORY: 4}, GREEDY, "only offline"),
    "greedy above a card": Refused(
        {GREEDY: 120, MEMORY: 4}, GREEDY, "not between 1 and 100", OFFLINE
    ),
    "greedy and core": Refused({GREEDY: 40, CORE: 30, MEMORY: 4}, CORE, "no fixed share", OFFLINE),
    "offline without greedy": Refused({MEMORY: 4}, MEMORY, "which part", OFFLINE),
    "offline without memory": Refused({GREEDY: 40}, GREEDY, "without memory", OFFLINE),
    "online with core": Refused({CORE: 30, MEMORY: 4}, CORE, "not limited", ONLINE),
    "online with greedy": Refused({GREEDY: 30, MEMORY: 4}, GREEDY, "not limited", ONLINE),
    "memory alone, not online": Refused({MEMORY: 4}, MEMORY, "only online pods"),
    "a class that does not exist": Refused(
        {CORE: 30, MEMORY: 4},
        "tke.cloud.tencent.com/app-class",
        "not a valid value",
        {"tke.cloud.tencent.com/app-class": "urgent"},
    ),
}
HAMI_REFUSED = {
    "memory in MiB and percent": Refused(
        {f"{HAMI}/gpumem": 100, f"{HAMI}/gpumem-percentage": 50},
        f"{HAMI}/gpumem-percentage",
        "also asked for in MiB",
    ),
    "percent above a card": Refused(
        {f"{HAMI}/gpumem-percentage": 101}, f"{HAMI}/gpumem-percentage", "not between 1 and 100"
    ),
    "cores above a card": Refused({f"{HAMI}/gpucores": 101}, f"{HAMI}/gpucores", "not between 0"),
    "no cards but memory": Refused(
        {f"{HAMI}/gpu": 0, f"{HAMI}/gpumem": 100}, f"{HAMI}/gpu", "not between 1 and"
    ),
    "a priority that does not exist": Refused(
        {f"{HAMI}/gpu": 1, f"{HAMI}/priority": 2}, f"{HAMI}/priority", "not between 0 and 1"
    ),
    "a priority and nothing": Refused(
        {f"{HAMI}/priority": 0}, f"{HAMI}/priority", "does not ask for a card"
    ),
    "an unknown policy for cards": Refused(
        {f"{HAMI}/gpumem": 100},
        "hami.io/gpu-scheduler-policy",
        "'packed' is not a policy",
        {"hami.io/gpu-scheduler-policy": "binpack,packed"},
    ),
    "an unknown policy for nodes": Refused(
        {f"{HAMI}/gpumem": 100},
        "hami.io/node-scheduler-policy",
        "'packed' is not a policy",
        {"hami.io/node-scheduler-policy": "packed"},
    ),
    "a mode that is not served": Refused(
        {f"{HAMI}/gpu": 1}, f"{HAMI}/vgpu-mode", "not supported", {f"{HAMI}/vgpu-mode": "mig"}
    ),
    "too many models": Refused(
        {f"{HAMI}/gpumem": 100},
        f"{HAMI}/use-gputype",
        "too long",
        {f"{HAMI}/use-gputype": ",".join(["A100"] * 65)},
    ),
    "too long a model": Refused(
        {f"{HAMI}/gpumem": 100},
        f"{HAMI}/use-gputype",
        "too long",
        {f"{HAMI}/use-gputype": "A" * 129},
    ),
}
NATIVE = {
    "memory in MiB and percent": Refused(
        {f"{OWN}/cards": 1, f"{OWN}/memory-mib": 100, f"{OWN}/memory-percent": 50},
        f"{OWN}/memory-percent",
        "also asked for in MiB",
    ),
    "MiB and nothing that has a plugin": Refused(
        {f"{OWN}/memory-mib": 100}, f"{OWN}/memory-mib", "it needs partage.dev/cards beside it"
    ),
    "memory above a card": Refused(
        {f"{OWN}/memory-percent": 101}, f"{OWN}/memory-percent", "not between 1 and 100"
    ),
    "compute above a card": Refused(
        {f"{OWN}/compute-percent": 101}, f"{OWN}/compute-percent", "not between 1 and 100"
    ),
    "two cards and all cards": Refused(
        {f"{OWN}/cards": 2}, f"{OWN}/cards", "asks for all cards", {f"{OWN}/cards": "all"}
    ),
    "some cards by annotation": Refused(
        {f"{OWN}/cards": 1}, f"{OWN}/cards", "not a valid value", {f"{OWN}/cards": "2"}
    ),
    "all cards, but no container asks": Refused(
        {"cpu": 1}, f"{OWN}/cards", "no container asks", {f"{OWN}/cards": "all"}
    ),
    "a ceiling below the share": Refused(
        {f"{OWN}/cards": 1, f"{OWN}/compute-percent": 30},
        f"{OWN}/compute-ceiling",
        "is below 30",
        {f"{OWN}/compute-ceiling": "20"},
    ),
    "a ceiling without a share": Refused(
        {f"{OWN}/cards": 1, f"{OWN}/memory-mib": 30},
        f"{OWN}/compute-ceiling",
        "no container asks for a share",
        {f"{OWN}/compute-ceiling": "20"},
    ),
    "online with a share of compute": Refused(
        {f"{OWN}/cards": 1, f"{OWN}/compute-percent": 30},
        f"{OWN}/compute-percent",
        "not limited",
        {f"{OWN}/qos": "online"},
    ),
    "an unknown quality of service": Refused(
        {f"{OWN}/cards": 1}, f"{OWN}/qos", "not a valid value", {f"{OWN}/qos": "urgent"}
    ),
    "an unknown policy": Refused(
        {f"{OWN}/cards": 1}, f"{OWN}/policy", "not a valid value", {f"{OWN}/policy": "random"}
    ),
}
TABLE = {
    f"{family}: {name}": row
    for family, rows in {
        "elastic": ELASTIC,
        "gaia": GAIA,
        "t9k": T9K,
        "aliyun": ALIYUN,
        "qgpu": QGPU,
        "hami": HAMI_REFUSED,
        "native": NATIVE,
    }.items()
    for name, row in rows.items()
}


def _places(at: str) -> set[str]:
    return {
        f"spec.containers[0].resources.limits[{at}]",
        f"metadata.annotations[{at}]",
        f"metadata.labels[{at}]",
    }


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_a_request_is_refused_at_its_field(row: Refused) -> None:
    """The error names the field, the problem, and something to write instead."""
    error = dialect_pods.refusal(
        dialect_pods.single(row.limits, annotations=row.annotations, labels=row.labels)
    )
    assert error.field in _places(row.at)
    assert row.why in error.problem
    assert error.instead


def test_the_place_tells_annotation_label_and_limit_apart() -> None:
    """A native count of cards can be wrong in the annotation or in the limits."""
    wrong = {"partage.dev/cards": "2"}
    at_annotation = dialect_pods.refusal(
        dialect_pods.single({"partage.dev/cards": 1}, annotations=wrong)
    )
    assert at_annotation.field == "metadata.annotations[partage.dev/cards]"
    every = {"partage.dev/cards": "all"}
    at_limit = dialect_pods.refusal(
        dialect_pods.single({"partage.dev/cards": 2}, annotations=every)
    )
    assert at_limit.field == "spec.containers[0].resources.limits[partage.dev/cards]"
    at_label = dialect_pods.refusal(
        dialect_pods.single({ALIYUN_MEMORY: 8}, labels={ALIYUN_COUNT: "0"})
    )
    assert at_label.field == "metadata.labels[aliyun.com/gpu-count]"


def test_the_way_out_names_the_nearest_steps() -> None:
    """Who wrote 33 is told 30 or 35; who wrote 3 is told 5, since 0 is nothing."""
    assert (
        dialect_pods.refusal(dialect_pods.single({CORE: 33, MEMORY: 5})).instead == "write 30 or 35"
    )
    assert dialect_pods.refusal(dialect_pods.single({CORE: 3, MEMORY: 5})).instead == "write 5"


def test_a_node_is_taken_by_one_container() -> None:
    """A second container that takes the node, or any card of it, is refused."""
    for limits in ({T9K_NODE: 1}, {T9K_CARDS: 1}, {T9K_PERCENT: 10}):
        pod = dialect_pods.pod(
            dialect_pods.container("a", {T9K_NODE: 1}), dialect_pods.container("b", limits)
        )
        (resource,) = limits
        assert dialect_pods.refusal(pod).field == f"spec.containers[1].resources.limits[{resource}]"


def test_an_administrator_may_allow_wider_slices() -> None:
    """The number of cards of one qGPU slice is a setting."""
    pod = dialect_pods.single({CORE: 250, MEMORY: 30})
    container_demand = (
        dialect_pods.demand(pod, contract.Settings(qgpu_max_cards=3)).containers[0].demand
    )
    assert (
        container_demand.cards,
        container_demand.memory_mib,
        container_demand.compute_percent,
    ) == (3, 10240, 83)


def test_a_pod_has_one_priority() -> None:
    """HAMi's priority is of a container, but quality of service is of a pod."""
    pod = dialect_pods.pod(
        dialect_pods.container("a", {"nvidia.com/gpumem": 1, "nvidia.com/priority": 0}),
        dialect_pods.container("b", {"nvidia.com/gpumem": 1, "nvidia.com/priority": 1}),
    )
    assert (
        dialect_pods.refusal(pod).field
        == "spec.containers[1].resources.limits[nvidia.com/priority]"
    )
